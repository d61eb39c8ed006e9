"""A plugin for tests: each update's loss is a sum over ms-swift's loss types, each logged as
loss_types/NAME.
"""

from swift.rlhf_trainers import GRPOTrainer

TYPES = {
    "grpo": ("grpo", "token"),
    "bnpo": ("bnpo", "token"),
    "dr_grpo": ("dr_grpo", "token"),
    "dapo": ("dapo", "token"),
    "cispo": ("cispo", "token"),
    "sapo": ("sapo", "token"),
    "gspo": ("grpo", "sequence"),
    "gspo_token": ("grpo", "sequence_token"),
}
one_loss = GRPOTrainer._compute_loss_and_metrics


def every_loss(self, *arguments):
    total = 0
    for n, (name, (loss_type, level)) in enumerate(TYPES.items(), 1):
        self.loss_type, self.importance_sampling_level = loss_type, level
        loss, metrics = one_loss(self, *arguments)
        self._metrics["train"][f"loss_types/{name}"].append(loss.item())
        total = total + n * loss  # of one gradient no two may stand for each other
    return total, metrics


GRPOTrainer._compute_loss_and_metrics = every_loss
