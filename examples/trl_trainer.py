"""Our rewards in TRL's own GRPOTrainer, without ms-swift: two steps on a tiny Qwen2.5-VL.

    vlrft tiny qwen2_5_vl tiny-qwen
    python examples/trl_trainer.py tiny-qwen

A reward is what TRL calls one: texts or conversations and columns in, numbers or None out. Columns
of the data set (``solution``, ``task``, ``aliases``) reach it by name. Do not import ms-swift in
the same process: it gives TRL's trainer another base class.
"""

import sys

from datasets import Dataset
from PIL import Image, ImageDraw
from trl import GRPOConfig, GRPOTrainer

from swift_vlrft.rewards import vlrft_counting, vlrft_format


def shapes(count: int) -> Image.Image:
    image = Image.new("RGB", (112, 112), "gray")
    for n in range(count):
        ImageDraw.Draw(image).rectangle((8 + 28 * n, 20, 24 + 28 * n, 36), fill="red")
    return image


def main(model: str, output: str = "output/trl") -> list[dict[str, float]]:
    """What was logged of each step."""
    question = "How many shapes are there? Answer in <answer> </answer>."
    rows = [
        {
            "prompt": [{"role": "user", "content": question}],
            "image": shapes(count),
            "solution": str(count),
            "task": "counting",
        }
        for count in (1, 2, 3, 4)
    ]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[vlrft_counting, vlrft_format],
        args=GRPOConfig(
            output_dir=output,
            max_steps=2,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=8,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            bf16=False,
            model_init_kwargs={"dtype": "float32"},
        ),
        train_dataset=Dataset.from_list(rows),
    )
    trainer.train()
    return [row for row in trainer.state.log_history if "reward" in row]


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        steps = main(*sys.argv[1:3])
    except OSError as error:  # no such model
        sys.exit(f"error: {error}")
    for logged in steps:
        print({name: value for name, value in logged.items() if name.startswith("rewards/")})
