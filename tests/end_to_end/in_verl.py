"""Run by verl's Python: its reward manager on made rows, with examples/verl_reward.py.

    python in_verl.py TOKENIZER verl_reward.py < ROWS > SCORES

ROWS: JSON, [[completion, solution, {"task": ...}], ...]; SCORES: what the manager made of each.
"""

import asyncio
import json
import sys

import numpy as np
import torch
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl import DataProto
from verl.trainer.ppo.reward import load_reward_manager

PROMPT = 3  # tokens


def batch(tokenizer, rows):
    """What a rollout hands over: token ids padded on the right, and the columns of the set."""
    answers = [tokenizer(text)["input_ids"] for text, *_ in rows]
    longest = max(map(len, answers)) + 1
    ids = torch.tensor([a + [tokenizer.pad_token_id] * (longest - len(a)) for a in answers])
    mask = torch.tensor([[1] * (PROMPT + len(a)) + [0] * (longest - len(a)) for a in answers])
    prompts = torch.full((len(rows), PROMPT), answers[0][0])
    columns = {
        "data_source": [columns["task"] for *_, columns in rows],
        "reward_model": [{"style": "rule", "ground_truth": gold} for _, gold, _ in rows],
        "extra_info": [{"index": n, "split": "train", **row[2]} for n, row in enumerate(rows)],
    }
    return DataProto.from_dict(
        tensors={"prompts": prompts, "responses": ids, "attention_mask": mask},
        non_tensors={name: np.array(values, dtype=object) for name, values in columns.items()},
    )


async def main(model, path):
    function = {"path": path, "name": "compute_score"}
    manager = {"source": "register", "name": "naive"}
    reward = {"custom_reward_function": function, "reward_manager": manager}
    tokenizer = AutoTokenizer.from_pretrained(model)
    manager = load_reward_manager(OmegaConf.create({"reward": reward}), tokenizer)
    data = batch(tokenizer, json.load(sys.stdin))
    return [(await manager.run_single(data[n : n + 1]))["reward_score"] for n in range(len(data))]


print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
