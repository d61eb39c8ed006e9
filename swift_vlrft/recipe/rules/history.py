"""Flags, values and defaults of older versions of ms-swift (recipe/history.py)."""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.recipe.history import NEW_DEFAULTS, OLD_FLAGS
from swift_vlrft.recipe.reader import Flag
from swift_vlrft.recipe.rules.finding import Edit, Finding, found
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
        if (old := OLD_FLAGS.get(flag.name)) is None:
            continue
        edit = Edit(flag.name, flag.line, name=old.now, drop=not old.now)
        case = "now" if old.now else "drop" if old.drop else "hint"
        values = {"flag": flag.name, "old": old, "hint": f" ({old.hint})" if old.hint else ""}
        rewritten = None if case == "hint" else edit
        yield found(run, flag.line, f"removed-flag/{case}", rewritten, **values)


def removed_values(run: Run) -> Iterator[Finding]:
    for flag in run.recipe.flags:
        if now := old_value(flag):
            edit = Edit(flag.name, flag.line, values=(now,))
            yield found(run, flag.line, "removed-value", edit, value=flag.values[0], now=now)


def missing_mode(run: Run) -> Iterator[Finding]:
    if run.command == "rlhf" and run.true("use_vllm") and run.lacks("vllm_mode"):
        mode = "colocate" if run.lacks("vllm_server_host") else "server"
        flag = run.given["use_vllm"]
        edit = Edit(flag.name, flag.line, add=f"--vllm_mode {mode}")
        yield found(run, flag.line, "vllm-mode/missing", edit, since=MODE_SINCE, mode=mode)


def new_defaults(run: Run) -> Iterator[Finding]:
    """Changed defaults, for a recipe whose flags show that it is older than they are."""
    flags = run.recipe.flags
    since = [_version(old.since) for flag in flags if (old := OLD_FLAGS.get(flag.name))]
    since += [_version("3.10.0") for flag in flags if old_value(flag)]
    if not since or not run.trains:
        return
    if list(missing_mode(run)):
        since.append(_version(MODE_SINCE))
    oldest = ".".join(map(str, min(since)))
    for changed, name, before, now in NEW_DEFAULTS:
        if _version(changed) >= min(since) and run.recipe.lacks(name):
            values = {"oldest": oldest, "name": name, "before": before, "now": now}
            yield found(run, run.recipe.line, "new-default", changed=changed, **values)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


HISTORY = (removed_flags, removed_values, missing_mode, new_defaults)
