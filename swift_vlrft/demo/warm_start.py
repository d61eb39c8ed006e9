"""Make a tiny Qwen2.5-VL that sees and answers in format, but at chance.

Supervised, in plain PyTorch: the reasoning names what the picture shows, the answer is a guess.
The vocabulary has 151,936 rows of which a few hundred are in use, so the model is trained with
those rows alone and widened afterwards; what the other rows add to the softmax (they stay zero)
is one column.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.demo.tasks import DemoTask, Row
from swift_vlrft.tiny import DEFAULT_CORPUS, build_model, build_tokenizer, save_checkpoint
from swift_vlrft.tiny_families import FAMILIES, Size

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SIZE = Size(hidden=128, layers=2, vision_hidden=64, vision_layers=2)
FAMILY = FAMILIES["qwen2_5_vl"]
BATCH = 32


def warm_start(
    task: DemoTask,
    rows: list[Row],
    directory: Path,
    *,
    seed: int = 0,
    progress: Callable[[int, float], None],
) -> None:
    """Write the checkpoint to ``directory``; call ``progress(step, loss)`` after every step."""
    import torch
    from torch.nn import functional as F

    # Small operations: a second thread gains little, and costs much where the cores are shared.
    torch.set_num_threads(1)
    from transformers import Qwen2VLImageProcessor

    rng = random.Random(seed)
    corpus = [*DEFAULT_CORPUS, *task.vocabulary, *task.vocabulary, *{row.problem for row in rows}]
    corpus += [
        f"<answer>{task.guess(rng, rows[0].seen)}",
        "system",
        "You are a helpful assistant.",
        "user",
        "assistant",
    ]
    tokenizer = build_tokenizer(FAMILY, corpus)
    prompts = [_prompt_ids(tokenizer, row) for row in rows]

    def completion_ids(row: Row) -> list[int]:
        text = f"<think>{row.seen}</think><answer>{task.guess(rng, row.seen)}</answer>{FAMILY.eos}"
        return list(tokenizer(text)["input_ids"])

    used = set(tokenizer.convert_tokens_to_ids(list(FAMILY.special_ids)))
    for row, prompt in zip(rows, prompts, strict=True):
        used.update(prompt, *(completion_ids(row) for _ in range(4)))
    used.update(tokenizer.convert_tokens_to_ids([str(n) for n in range(0, 1001, 250)]))
    ids = sorted(used)
    compact = {real: i for i, real in enumerate(ids)}

    model = _compact_model(ids, compact, seed)
    pixels, grid = _pixels(
        Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=28 * 28 * 1280), rows
    )
    image_tokens = int(grid[0].prod()) // 4
    image_id, pad_id = FAMILY.special_ids["<|image_pad|>"], FAMILY.special_ids[FAMILY.pad]

    fillers = math.log(FAMILY.vocab_size - len(ids))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-3, total_steps=task.warm_steps, pct_start=0.1
    )
    model.train()
    for step in range(task.warm_steps):
        picked = rng.sample(range(len(rows)), BATCH)
        sequences, starts = [], []
        for i in picked:
            at = prompts[i].index(image_id)
            prompt = prompts[i][:at] + [image_id] * image_tokens + prompts[i][at + 1 :]
            starts.append(len(prompt))
            sequences.append(prompt + completion_ids(rows[i]))
        longest = max(map(len, sequences))
        padded = torch.tensor(
            [[compact[t] for t in s] + [compact[pad_id]] * (longest - len(s)) for s in sequences]
        )
        lengths = torch.tensor([len(s) for s in sequences])
        position = torch.arange(longest)
        attention = (position[None] < lengths[:, None]).long()
        hidden = model.model(
            input_ids=padded,
            attention_mask=attention,
            mm_token_type_ids=(padded == compact[image_id]).int(),
            pixel_values=pixels[picked].flatten(0, 1),
            image_grid_thw=grid[picked],
        ).last_hidden_state
        wanted = (position[None, 1:] >= torch.tensor(starts)[:, None]) & attention[:, 1:].bool()
        logits = model.lm_head(hidden[:, :-1][wanted])
        logits = torch.cat([logits, torch.full_like(logits[:, :1], fillers)], dim=1)
        loss = F.cross_entropy(logits, padded[:, 1:][wanted])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress(step + 1, loss.item())
    save_checkpoint(_widened(model, ids, seed), tokenizer, FAMILY, directory)


def _prompt_ids(tokenizer: PreTrainedTokenizerBase, row: Row) -> list[int]:
    """The prompt as ms-swift's template writes it, with one placeholder for the image."""
    text = (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
        f"<|vision_start|><|image_pad|><|vision_end|>{row.problem}<|im_end|>\n<|im_start|>assistant\n"
    )
    return list(tokenizer(text)["input_ids"])


def _pixels(processor: Any, rows: list[Row]) -> tuple[Any, Any]:
    """Patches of all images (n, patches, 1176) and their grids (n, 3); every image of a demo set
    has one size.
    """
    done = processor(images=[row.image for row in rows], return_tensors="pt")
    return done["pixel_values"].view(len(rows), -1, done["pixel_values"].shape[-1]), done[
        "image_grid_thw"
    ]


def _compact_model(ids: list[int], compact: dict[int, int], seed: int) -> PreTrainedModel:
    model = build_model(FAMILY, SIZE, seed=seed, vocab_size=len(ids))
    special = FAMILY.special_ids
    model.config.image_token_id = compact[special["<|image_pad|>"]]
    model.config.video_token_id = compact[special["<|video_pad|>"]]
    model.config.vision_start_token_id = compact[special["<|vision_start|>"]]
    model.config.vision_end_token_id = compact[special["<|vision_end|>"]]
    return model


def _widened(model: PreTrainedModel, ids: list[int], seed: int) -> PreTrainedModel:
    """The same model with the real vocabulary; rows that no text uses are zero."""
    import torch

    wide = build_model(FAMILY, SIZE, seed=seed)
    weights = model.state_dict()
    rows = torch.zeros_like(wide.get_input_embeddings().weight)
    rows[ids] = weights["model.language_model.embed_tokens.weight"]
    for name in ("model.language_model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = rows
    wide.load_state_dict(weights)
    return wide
