"""Find flags and values of older versions of ms-swift (recipe/history.py)."""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.recipe.history import OLD_FLAGS
from swift_vlrft.recipe.reader import Flag
from swift_vlrft.recipe.rules.finding import Finding, left_out, problem, renamed
from swift_vlrft.recipe.run import Run

SCALES = {"true": "group", "false": "none"}
"""What --scale_rewards was, and is since 3.10.0."""


def old_value(flag: Flag) -> str | None:
    """Return the current name of an old value of a flag."""
    scales = flag.name == "scale_rewards" and flag.known and flag.values
    return SCALES.get(flag.values[0].lower()) if scales else None


def removed_flags(run: Run) -> Iterator[Finding]:
    for flag in run.recipe.flags:
        if old := OLD_FLAGS.get(flag.name):
            became = f"--{old.now}" if old.now else "gone"
            text = f"--{flag.name} is {became} since ms-swift {old.since}"
            text = "; ".join(filter(None, (text, "leave it out" * old.drop, old.hint)))
            mends = renamed(flag, old.now) if old.now else ()
            mends = left_out(run.recipe.text, flag) if old.drop else mends
            yield problem(run, flag, "removed-flag", text, mends)


def missing_mode(run: Run) -> Iterator[Finding]:
    if run.command == "rlhf" and run.true("use_vllm") and run.omits("vllm_mode"):
        mode = "colocate" if run.omits("vllm_server_host") else "server"
        text = "--use_vllm true needs --vllm_mode since ms-swift 3.12.0"
        yield problem(run, "use_vllm", "vllm-mode", f"{text}: add --vllm_mode {mode}")


HISTORY = (removed_flags, missing_mode)
