"""Find flags that do nothing beside the others, and say what they would need (effects.toml).

--sleep_level 1                 without --use_vllm true there is no vLLM
--kl_coef 0.05                  is PPO's: in GRPO --beta is the weight of the KL
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from swift_vlrft.recipe.history import OF_OTHERS
from swift_vlrft.recipe.rules.batches import engine_mode
from swift_vlrft.recipe.rules.finding import NOTE, Finding, problem
from swift_vlrft.recipe.run import NoValue, Run


class Idle(msgspec.Struct, frozen=True):
    """A row of effects.toml, whose head says what its fields are."""

    flags: str
    of: tuple[str, ...]
    text: str
    one_of: frozenset[str] = frozenset()
    none_of: frozenset[str] = frozenset()
    level: str = NOTE
    absent: str | None = None


IDLE = msgspec.toml.decode(
    Path(__file__).with_name("effects.toml").read_bytes(), type=dict[str, tuple[Idle, ...]]
)["idle"]


def _works(run: Run, row: Idle) -> bool:
    values = set[str | None]()
    for name in row.of:
        mode = name == "engine"
        values |= {engine_mode(run)} if mode else {*(run.texts(name) or (run.text(name),))}
    if row.none_of:
        return not values & row.none_of
    return bool(values & row.one_of if row.one_of else values - {None})


def idle(run: Run) -> Iterator[Finding]:
    """Yield one finding a flag: of the first thing that it lacks."""
    for name, flag in run.given.items() if run.command == "rlhf" else ():
        value = run.as_given(name)
        off = value in (False, 0, None) or (value == 1 and name.endswith("parallel_size"))
        for row in IDLE if not off and name in run.flags else ():
            with suppress(NoValue):
                if re.fullmatch(row.flags, name) and not _works(run, row):
                    kind, ours = run.text("rlhf_type"), OF_OTHERS.get(name, "")
                    text = f"--{name} has no effect here: {row.text}"
                    text += f", and --rlhf_type is {kind}" * row.text.startswith("it is")
                    text += f"; in GRPO --{ours} is the flag for it" * bool(ours and run.grpo)
                    level = row.absent if row.absent and run.omits(*row.of) else row.level
                    yield problem(run, flag, "no-effect", text, level=level)
                    break
