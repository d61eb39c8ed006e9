"""The driver of `megatron rlhf --use_ray true --config cfg.yaml`, up to where its workers start:

python ray_driver.py --config cfg.yaml    answers on its standard input, one for each row

It prints what the rewards give them, and the iterations that ms-swift counts for the workers.
"""

import json
import sys

from swift.ray.megatron.grpo_trainer import GRPOTrainer
from swift.ray.megatron.pipeline import MegatronRayPipeline
from swift.rl_core.data import GRPOSample

KEPT = ("messages", "images")


def sample(row: dict, answer: str) -> GRPOSample:
    said = {"role": "assistant", "content": answer}
    extra = {name: value for name, value in row.items() if name not in KEPT}
    return GRPOSample([*row["messages"], said], row["images"], extra=extra)


pipeline = MegatronRayPipeline(sys.argv[2])
pipeline._data_info = pipeline._build_dataset()
pipeline._compute_train_iters()
trainer = GRPOTrainer({}, [])
trainer.set_data_info(pipeline._data_info)
trainer._prepare_state()
rows = list(pipeline._data_info["train_dataset"])
samples = [sample(row, answer) for row, answer in zip(rows, json.load(sys.stdin), strict=True)]
print(
    json.dumps(
        {
            "names": trainer.reward_func_names,
            "solutions": [row["solution"] for row in rows],
            "scores": trainer.score_completions(samples).tolist(),
            "iterations": pipeline.group_cfgs["train"]["train_iters"],
        }
    )
)
