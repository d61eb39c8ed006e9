"""examples/trl_trainer.py in a process without ms-swift, which gives TRL's trainer another base
class. Prints of each step what TRL scored and the rewards that it went on with, as JSON.

    python in_trl.py MODEL OUTPUT < ANSWERS

ANSWERS: JSON, for each step texts that stand in for its first completions: a random model writes
none that earns anything.
"""

import json
import sys
from pathlib import Path

from trl import GRPOTrainer

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from trl_trainer import main

answers, steps = json.load(sys.stdin), []
generate, calculate = GRPOTrainer._generate_single_turn, GRPOTrainer._calculate_rewards


def generated(self, *arguments):
    written, *rest = generate(self, *arguments)
    tokenizer = self.processing_class.tokenizer
    made = [tokenizer(text)["input_ids"] for text in answers[len(steps)]]
    return [*made, *written[len(made) :]], *rest


def calculated(self, inputs, prompts, completions, completion_ids):
    rewards = calculate(self, inputs, prompts, completions, completion_ids)
    columns = {name: [row[name] for row in inputs] for name in ("solution", "task")}
    steps.append({"completions": completions, "rewards": rewards.tolist(), **columns})
    return rewards


GRPOTrainer._generate_single_turn, GRPOTrainer._calculate_rewards = generated, calculated
logged = main(*sys.argv[1:])
assert len(logged) == len(steps)
print(json.dumps(steps))
