"""Check flags of a run in several turns (--multi_turn_scheduler vlrft_zoom).

--vllm_mode server without --vllm_server_pass_dataset    the engine does not know the row's frame
--vllm_limit_mm_per_prompt '{"image": 1}'                vLLM refuses the second turn's picture
"""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.recipe.rules.finding import Finding, problem
from swift_vlrft.recipe.run import Run
from swift_vlrft.zoom import SCHEDULER

TURNS, MOST_TURNS = 4, 16
"""Turns of a row where --max_turns says nothing, and at most."""
FLAG = "multi_turn_scheduler"


def most_turns(run: Run) -> int:
    """Return how many turns with images a row may have; 1 without our scheduler."""
    if not run.grpo or run.text(FLAG) != SCHEDULER:
        return 1
    return min(run.optional("max_turns") or TURNS, MOST_TURNS)


def turns(run: Run) -> Iterator[Finding]:
    """Find turns that the engine does not take."""
    most = most_turns(run)
    if most > 1 and run.true("use_vllm") and run.text("vllm_mode") != "server":
        allowed = run.json_or_empty("vllm_limit_mm_per_prompt").get("image")
        if type(allowed) is int and allowed < most:
            text = f"{most} turns show up to {most} images: vLLM allows "
            text += f"{allowed} and ends the run; write '{{\"image\": {most}}}'"
            yield problem(run, "vllm_limit_mm_per_prompt", "turns", text)
