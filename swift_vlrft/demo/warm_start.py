"""Make a tiny InternVL that sees and answers in format, but at chance.

Supervised, in plain PyTorch: the reasoning names what the image shows, the answer is a guess.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from swift_vlrft.demo import model as demo_model
from swift_vlrft.demo.model import IMAGE, image_tokens, tiny_internvl
from swift_vlrft.demo.tasks import DemoTask, Row
from swift_vlrft.tiny import checkpoint

BATCH = 32
LEARNING_RATE = 2e-3


def warm_start(
    task: DemoTask,
    rows: list[Row],
    directory: Path,
    *,
    seed: int = 0,
    progress: Callable[[int, str], None],
) -> None:
    """Write the checkpoint to ``directory``; call ``progress(step, "loss ..")`` after each step."""
    import torch
    from torch.nn import functional as F

    # Small operations: a second thread gains little, and costs much where the cores are shared.
    torch.set_num_threads(1)
    from transformers import GotOcr2ImageProcessor

    rng = random.Random(seed)
    tiny = tiny_internvl(task.side)
    corpus = [
        *checkpoint.DEFAULT_CORPUS,
        *task.vocabulary,
        *task.vocabulary,
        *{row.problem for row in rows},
    ]
    corpus += [f"<answer>{task.guess(rng, rows[0].seen)}", "user", "assistant"]
    tokenizer = checkpoint.build_tokenizer(tiny, corpus)
    image = f"<img>{IMAGE * image_tokens(task.side)}</img>"
    # As ms-swift's template writes it.
    turn = f"<|im_start|>user\n{image}\n{{}}<|im_end|>\n<|im_start|>assistant\n"
    prompts = [list(tokenizer(turn.format(row.problem))["input_ids"]) for row in rows]
    model = checkpoint.build_model(tiny, demo_model.SIZE, seed=seed)
    # ms-swift would look for the image of an image token that the model wrote.
    model.generation_config.suppress_tokens = demo_model.IMAGE_TOKEN_IDS
    pixels = GotOcr2ImageProcessor(**tiny.image_options)(
        images=[row.image for row in rows], return_tensors="pt"
    )["pixel_values"]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=0.0, betas=(0.9, 0.98)
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=LEARNING_RATE, total_steps=task.warm_steps, pct_start=0.1
    )
    model.train()
    for step in range(task.warm_steps):
        picked = rng.sample(range(len(rows)), BATCH)
        sequences = []
        for i in picked:
            guess = task.guess(rng, rows[i].seen)
            text = f"<think>{rows[i].seen}</think><answer>{guess}</answer>{tiny.eos}"
            sequences.append(prompts[i] + list(tokenizer(text)["input_ids"]))
        longest = max(map(len, sequences))
        ids = torch.tensor([s + [tokenizer.pad_token_id] * (longest - len(s)) for s in sequences])
        lengths = torch.tensor([len(s) for s in sequences])
        starts = torch.tensor([len(prompts[i]) for i in picked])
        position = torch.arange(longest)
        attention = (position[None] < lengths[:, None]).long()
        hidden = model.model(
            input_ids=ids, attention_mask=attention, pixel_values=pixels[picked]
        ).last_hidden_state
        wanted = (position[None, 1:] >= starts[:, None]) & attention[:, 1:].bool()
        loss = F.cross_entropy(model.lm_head(hidden[:, :-1][wanted]), ids[:, 1:][wanted])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress(step + 1, f"loss {loss.item():.2f}")
    checkpoint.save_checkpoint(model, tokenizer, tiny, demo_model.TEMPLATE, directory)
