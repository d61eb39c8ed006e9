"""Flags, values and defaults of older versions of ms-swift (recipe/history.py)."""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.recipe.history import NEW_DEFAULTS, OLD_FLAGS
from swift_vlrft.recipe.reader import Flag
from swift_vlrft.recipe.rules.finding import Edit, Finding, note, problem
from swift_vlrft.recipe.run import Run

SCALES = {"true": "group", "false": "none"}
"""What --scale_rewards was, and is since 3.10.0."""

MODE_SINCE = "3.12.0"


def old_value(flag: Flag) -> str | None:
    """The current name of an old value of a flag."""
    scales = flag.name == "scale_rewards" and flag.known and flag.values
    return SCALES.get(flag.values[0].lower()) if scales else None


def removed_flags(run: Run) -> Iterator[Finding]:
    for flag in run.recipe.flags:
        old = run.old_flags.get(flag.name)
        if old is None:
            continue
        hint = f" ({old.hint})" if old.hint else ""
        edit = Edit(flag.name, flag.line, name=old.now, drop=not old.now)
        if old.now:
            text = f"--{flag.name} is --{old.now} since ms-swift {old.since}{hint}"
        elif old.drop:
            text = f"--{flag.name} is gone since ms-swift {old.since}: leave it out{hint}"
        else:
            text = f"--{flag.name} is gone since ms-swift {old.since}: {old.hint}"
        rewritten = edit if old.now or old.drop else None
        yield problem(run, flag.line, "removed-flag", text, rewritten)


def removed_values(run: Run) -> Iterator[Finding]:
    for flag in run.recipe.flags:
        if now := old_value(flag):
            text = (
                f"--scale_rewards {flag.values[0]} is `{now}` since ms-swift 3.10.0 "
                "(choices: group, batch, none, gdpo)"
            )
            edit = Edit(flag.name, flag.line, value=now)
            yield problem(run, flag.line, "removed-value", text, edit)


def missing_mode(run: Run) -> Iterator[Finding]:
    if run.command == "rlhf" and run.true("use_vllm") and run.lacks("vllm_mode"):
        mode = "colocate" if run.lacks("vllm_server_host") else "server"
        text = f"needs --vllm_mode since ms-swift {MODE_SINCE}; before, it was {mode}"
        flag = run.given["use_vllm"]
        text = f"--use_vllm true {text}: add --vllm_mode {mode}"
        yield problem(run, flag.line, "vllm-mode", text)


def new_defaults(run: Run) -> Iterator[Finding]:
    """Changed defaults, for a recipe whose flags show that it is older than they are."""
    flags = run.recipe.flags
    since = [_version(old.since) for flag in flags if (old := OLD_FLAGS.get(flag.name))]
    since += [_version("3.10.0") for flag in flags if old_value(flag)]
    if not since or not run.trains:
        return
    if list(missing_mode(run)):
        since.append(_version(MODE_SINCE))
    oldest = min(since)
    for changed, name, before, now in NEW_DEFAULTS:
        if _version(changed) >= oldest and run.recipe.lacks(name):
            text = (
                f"this recipe is older than ms-swift {'.'.join(map(str, oldest))}; the default of "
                f"--{name} has changed since: {before} became {now} in {changed}"
            )
            yield note(run, run.recipe.line, "new-default", text)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


HISTORY = (removed_flags, removed_values, missing_mode, new_defaults)
