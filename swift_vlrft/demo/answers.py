"""What a checkpoint answers on held-out images: greedy, in batches, with transformers."""

from __future__ import annotations

from pathlib import Path

from swift_vlrft.demo.tasks import DemoTask, Row
from swift_vlrft.rewards import REWARDS


def greedy_answers(
    checkpoint: Path, rows: list[Row], max_tokens: int, batch: int = 64
) -> list[str]:
    """One completion per row, special tokens left out."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(checkpoint)
    processor.tokenizer.padding_side = "left"
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).eval()
    texts: list[str] = []
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        prompts = [
            processor.apply_chat_template(
                [
                    {
                        "role": "user",
                        "content": [{"type": "image"}, {"type": "text", "text": row.problem}],
                    }
                ],
                add_generation_prompt=True,
            )
            for row in part
        ]
        inputs = processor(
            text=prompts, images=[[row.image] for row in part], return_tensors="pt", padding=True
        )
        with torch.inference_mode():
            made = model.generate(**inputs, max_new_tokens=max_tokens, do_sample=False)
        texts += processor.tokenizer.batch_decode(
            made[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
    return texts


def score_answers(task: DemoTask, rows: list[Row], answers: list[str]) -> list[float]:
    scores = REWARDS[task.reward](answers, [row.solution for row in rows])
    return [score or 0.0 for score in scores]
