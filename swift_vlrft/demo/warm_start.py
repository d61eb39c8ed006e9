"""Make a tiny model that sees and answers in format, but at chance.

Supervised, in plain PyTorch: the reasoning names what the image shows, the answer is a guess.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from swift_vlrft.demo import model as demo
from swift_vlrft.demo.rows import Row
from swift_vlrft.demo.tasks import DemoTask
from swift_vlrft.tiny import checkpoint

BATCH = 32


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
    rng = random.Random(seed)
    tiny = demo.tiny_internvl(task.side)
    corpus = [
        *checkpoint.DEFAULT_CORPUS,
        *task.vocabulary,
        *task.vocabulary,
        *{row.problem for row in rows},
    ]
    corpus += [f"<answer>{task.guess(rng, rows[0].seen)}", "user", "assistant"]
    tokenizer = checkpoint.build_tokenizer(tiny, corpus)
    model = checkpoint.build_model(tiny, demo.SIZE, seed=seed)
    # ms-swift would look for the image of an image token that the model wrote.
    model.generation_config.suppress_tokens = [
        number for name, number in tiny.special_ids.items() if name != tiny.eos
    ]
    processor = checkpoint.build_processor(tiny, tokenizer, model.config)
    prompts = [
        processor(text=demo.prompt(row.problem), images=row.image, return_tensors="pt")
        for row in rows
    ]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=task.warm_learning_rate, weight_decay=0.0, betas=(0.9, 0.98)
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=task.warm_learning_rate, total_steps=task.warm_steps, pct_start=0.1
    )
    model.train()
    for step in range(task.warm_steps):
        picked = rng.sample(range(len(rows)), BATCH)
        sequences, starts = [], []
        for i in picked:
            guess = task.guess(rng, rows[i].seen)
            text = f"<think>{rows[i].seen}</think><answer>{guess}</answer>{tiny.eos}"
            prompt = prompts[i]["input_ids"][0].tolist()
            sequences.append(prompt + list(tokenizer(text)["input_ids"]))
            starts.append(len(prompt))
        longest = max(map(len, sequences))
        ids = torch.tensor([s + [tokenizer.pad_token_id] * (longest - len(s)) for s in sequences])
        lengths, position = torch.tensor(list(map(len, sequences))), torch.arange(longest)
        attention = (position[None] < lengths[:, None]).long()
        hidden = model.model(
            input_ids=ids,
            attention_mask=attention,
            mm_token_type_ids=(ids == model.config.image_token_id).int(),
            pixel_values=torch.cat([prompts[i]["pixel_values"] for i in picked]),
        ).last_hidden_state
        wanted = (position[None, 1:] >= torch.tensor(starts)[:, None]) & attention[:, 1:].bool()
        loss = F.cross_entropy(model.lm_head(hidden[:, :-1][wanted]), ids[:, 1:][wanted])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress(step + 1, f"loss {loss.item():.2f}")
    checkpoint.save_checkpoint(model, tokenizer, tiny, demo.TEMPLATE, directory)
