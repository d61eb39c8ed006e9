"""Count the tokens and images of a run's longest row.

rule_of(read_run("recipes/demo_cpu.sh"), model).max_pixels
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from swift_vlrft.families.resize import ImageRule
from swift_vlrft.families.tiles import Tiles
from swift_vlrft.families.video import VideoRule
from swift_vlrft.geometry.box_format import Size
from swift_vlrft.memory.images import Longest
from swift_vlrft.memory.models import Model
from swift_vlrft.memory.settings import Settings
from swift_vlrft.recipe.rules.model import family, of_videos
from swift_vlrft.recipe.rules.turns import most_turns
from swift_vlrft.recipe.run import Run

NO_SET = "no data set is read without `vlrft plan --dataset PATH`"
PROMPT_TEXT = 256
"""Tokens, assumed without a data set: the detection prompts of this package have 120 to 200."""

REPLY = 24
"""Tokens around a crop: the tool's turn."""

ANSWER = 512
"""Tokens of a supervised answer, assumed: ms-swift's default of --max_completion_length."""


def supervised(run: Run, settings: Settings, longest: Longest | None) -> dict[str, Any]:
    """Return prompt, answer and images of a row of `swift sft`.

    Prompt and answer are together as long as --max_length allows, or several rows packed to that
    length. If --max_new_tokens is not set, an answer has ANSWER tokens, without images all but the
    prompt, and with a data set as many as its longest answer.
    """
    prompt, packed, grids = settings.prompt, run.true("packing"), settings.grids
    stated, length = "max_new_tokens" in run.given, settings.max_length
    answer = run.integer("max_new_tokens") if stated else ANSWER
    answer = (longest and longest.answer) or answer
    if packed:
        length = run.optional("packing_length") or length or settings.model.context
        if settings.train_vit:  # as many images as go into it; else answers take more
            row = settings.image_tokens + prompt + answer
            grids *= max(1, (length or 0) // row)
            settings = replace(settings, grids=grids)
    if length:
        room = max(2, length - settings.image_tokens)
        if packed or (not stated and not grids and longest is None):
            answer = max(room - prompt, room // 2)
        answer = min(answer, room - 1)
        prompt = room - answer if longest is None or packed else min(prompt, room - answer)
    return {
        **{"rollout": "none", "generations": 1, "max_length": None, "supervised": True},
        **{"completion": answer, "prompt": prompt, "grids": grids},
        "eval_generates": run.true("predict_with_generate"),
    }


def turns_of(run: Run, settings: Settings, notes: list[str]) -> dict[str, Any]:
    """Return images and tokens of further turns: each crop is as large as an image may be."""
    turns, model = most_turns(run), settings.model
    if turns == 1 or not model.sees:
        return {}
    rule = rule_of(run, model)
    grids = settings.grids + _grids(model, rule.parts(*rule.largest())) * (turns - 1)
    tokens = replace(settings, grids=grids).image_tokens - settings.image_tokens
    notes.append(
        f"{turns} turns, each with an answer of {settings.completion} tokens, and a "
        f"crop of {tokens // (turns - 1)} tokens between them"
    )
    # Crops stand among the answers: log-probabilities are computed over all from the first one on.
    completion = turns * settings.completion + (turns - 1) * REPLY + tokens
    return {"grids": grids, "crop_tokens": tokens, "completion": completion}


def images_of(run: Run, model: Model, longest: Longest | None, notes: list[str]) -> dict[str, Any]:
    """Return image patches and text tokens of the longest row."""
    by, prompt = _pixels_by(run, model), (longest and longest.text) or PROMPT_TEXT
    values: dict[str, Any] = {"pixels": by, "prompt": prompt}
    if longest and longest.text:
        notes.append(f"text of the longest row of {longest.source}: {prompt} tokens (characters/3)")
    elif longest or run.grpo:
        no_text = f"no text in {longest.source}" if longest else NO_SET
        notes.append(f"{no_text}: a prompt of {prompt} text tokens")
    if not model.sees:
        return values
    if not model.knows_images:
        notes.append(f"{model.type}: images are counted by Qwen2-VL's rule")
    rule = rule_of(run, model)
    if of_videos(run):
        if (known := family(run)) and not known.has_videos:
            raise ValueError(f"{known.name}: its videos are not planned")
        video = VideoRule(model.patch * model.merge).of(run.recipe.environment)
        if (frames := video.most_frames // 2 * 2) == 0:  # smart_nframes of qwen-vl-utils
            raise ValueError("FPS_MAX_FRAMES=1: frames are read in pairs; write 2 or more")
        width, height = video.size(*rule.largest(), frames)
        notes.append(f"one video a row: {frames} frames of {width} x {height} pixels, the most")
        return values | {"grids": ((frames // 2, height // model.patch, width // model.patch),)}
    most, by_length = run.optional("max_length"), False
    if most and not run.grpo and longest is None and rule.adjustable:
        # A larger image makes a row that is too long, which ms-swift leaves out of `swift sft`.
        room = rule.factor**2 * rule.frames * max(1, most - min(prompt, most // 2))
        by_length = room < rule.max_pixels
        rule = rule.within(max_pixels=max(rule.min_pixels, min(rule.max_pixels, room)))
    if longest is not None:
        sizes = [part for size in longest.images for part in rule.parts(*size)]
        shown = ", ".join(f"{width} x {height}" for width, height in sizes[:4]) or "none"
        notes.append(f"images of the longest row of {longest.source}: {shown}")
    else:
        sizes, tokens = rule.parts(*rule.largest()), rule.tokens(*rule.largest())
        named = "max_pixels" in run.given or by == "model_kwargs" or by in run.image_limits
        limit = by if named else f"{by} is not set; the family's limit"
        limit = f"room in --max_length {most}" if by_length else limit
        size = f"as large as allowed ({limit}: {rule.max_pixels})"
        if isinstance(rule, Tiles):
            tile = f"{sizes[0][0]} x {sizes[0][1]} pixels"
            size = f"in {len(sizes)} tiles of {tile}, the most (max_patches in the checkpoint)"
        elif by == "fixed":
            size = f"seen {rule.seen}: {sizes[0][0]} x {sizes[0][1]} pixels"
        notes.append(f"{NO_SET}: one image a row {size}, {tokens} tokens")
    return values | {"grids": _grids(model, sizes)}


def _grids(model: Model, sizes: Sequence[Size]) -> tuple[tuple[int, int, int], ...]:
    return tuple((1, height // model.patch, width // model.patch) for width, height in sizes)


def rule_of(run: Run, model: Model) -> ImageRule:
    """Return how a run resizes images: under the template's limits, and ms-swift's --max_pixels."""
    rule = model.image_rule.of(model.name, run.image_limits)
    if flag := run.optional("max_pixels"):
        return rule.capped(flag)
    return rule.within(max_pixels=max(rule.min_pixels, rule.max_pixels))


def _pixels_by(run: Run, model: Model) -> str:
    """Return what to change for smaller images: the limit in effect (families/resize.py)."""
    if not model.image_rule.adjustable:
        return "fixed"
    if not model.knows_images or not model.image_rule.from_environment:
        return "max_pixels"  # ms-swift's flag scales the image itself, whatever the template
    tokens = "IMAGE_MAX_TOKEN_NUM" in run.image_limits
    name = "IMAGE_MAX_TOKEN_NUM" if tokens else "MAX_PIXELS"
    return "model_kwargs" if name in run.limits_in_kwargs else name
