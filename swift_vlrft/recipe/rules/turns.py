"""Check flags of a run in several turns (--multi_turn_scheduler vlrft_zoom).

--vllm_mode server without --vllm_server_pass_dataset    the engine does not know the row's frame
--vllm_limit_mm_per_prompt '{"image": 1}'                vLLM refuses the second turn's picture
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import suppress

from swift_vlrft.parsing.calls import MOST_TURNS, TURNS
from swift_vlrft.recipe.plugins import read_plugin
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.rules.model import given_plugins
from swift_vlrft.recipe.run import Run

NAME = "vlrft_zoom"
OURS = ("vlrft_zoom_cover", "vlrft_tool_format")


def most_turns(run: Run) -> int:
    """Return how many turns a row may have; 1 without our scheduler."""
    if not run.grpo or run.text("multi_turn_scheduler") != NAME:
        return 1
    return min(run.optional("max_turns") or TURNS, MOST_TURNS)


def scheduler(run: Run) -> Iterator[Finding]:
    """Find a misspelt scheduler, and ours without the plugin that registers it."""
    flag, name = "multi_turn_scheduler", run.text("multi_turn_scheduler")
    if run.command not in ("rlhf", "rollout") or not name:
        return
    if name != NAME:
        if difflib.get_close_matches(name, [NAME], cutoff=0.9):
            text = f"no scheduler is named {name}. Did you mean {NAME}?"
            yield problem(run, flag, "turns", text)
        return
    paths = [path for *_, path in given_plugins(run)]
    plugins = [read_plugin(path) for path in paths if path and path.is_file()]
    if len(plugins) == len(paths) and not any(p.ours or p.fault or p.anything for p in plugins):
        text = f'{NAME} is a scheduler of this package: add --external_plugins "$(vlrft plugin)"'
        yield problem(run, flag, "turns", text)


def zoom(run: Run) -> Iterator[Finding]:
    if not run.grpo:
        return
    flag, rule, turns = "multi_turn_scheduler", "turns", most_turns(run)
    if run.text(flag) != NAME:
        for name in OURS[: run.lacks(flag)]:
            if name in run.texts("reward_funcs"):
                text = f"{name} scores crops, and no model asks for crops without --{flag} {NAME}"
                yield problem(run, "reward_funcs", rule, text)
        return
    if (run.optional("max_turns") or 0) > MOST_TURNS:
        text = f"--max_turns {run.integer('max_turns')} is taken as {MOST_TURNS}"
        yield note(run, "max_turns", rule, text)
    if run.true("use_vllm") and run.text("vllm_mode") == "server":
        if not run.true("vllm_server_pass_dataset"):
            text = "the engine must know a row's box format: --vllm_server_pass_dataset true"
            yield problem(run, flag, rule, text)
    elif run.true("use_vllm"):
        allowed = None
        with suppress(OSError, ValueError):
            allowed = run.json("vllm_limit_mm_per_prompt").get("image")
        if type(allowed) is int and allowed < turns:
            text = f"{turns} turns show up to {turns} images: vLLM allows "
            text += f"{allowed} and ends the run; write '{{\"image\": {turns}}}'"
            yield problem(run, "vllm_limit_mm_per_prompt", rule, text)


ZOOM = (scheduler, zoom)
