"""Resuming a run from a checkpoint so that it is the run that was not interrupted.

Restored here, as ms-swift 4.6.0 and transformers do not:

    the weights         without DeepSpeed transformers looks for them under their names in memory,
                        saves them under others (Qwen2.5-VL), and goes on with the untrained ones
    the order of rows   of a later epoch

Random states, optimizer and schedule are restored by transformers and DeepSpeed.
tests/end_to_end/test_exact_resume.py compares runs with and without a kill.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from swift.callbacks import TrainerCallback
from swift.utils import get_logger
from torch import nn
from trl.trainer.utils import RepeatSampler

from swift_vlrft.files.checkpoints import tensor_shapes, weight_files

logger = get_logger()


class Resume(TrainerCallback):
    """Restores from a checkpoint, when training begins, what the trainers leave out."""

    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        # Workers that stay from epoch to epoch draw a seed when they start. Those of the run that
        # was not interrupted started long ago.
        self.epochs_until_start = -1
        self.random_state: torch.Tensor | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not (state.global_step > 0 and args.resume_from_checkpoint):
            return
        checkpoint = Path(args.resume_from_checkpoint)
        if not self.trainer.is_deepspeed_enabled and not self.trainer.is_fsdp_enabled:
            restore_weights(self.trainer.accelerator.unwrap_model(kwargs["model"]), checkpoint)
        if args.ignore_data_skip:
            return  # ms-swift starts at the first row again
        loader = kwargs["train_dataloader"]
        updates = max(-(-len(loader) // args.gradient_accumulation_steps), 1)  # of an epoch
        epochs, within = divmod(state.global_step, updates)
        skip_epochs(loader, epochs)
        if getattr(loader, "persistent_workers", False):
            if within:  # the rest of this epoch has workers of its own
                self.epochs_until_start = 1
            else:
                self.trainer._load_rng_state(checkpoint)
                self.random_state = torch.get_rng_state()
        # An epoch is a whole number of rollouts.
        step = within * args.gradient_accumulation_steps
        rollout = args.steps_per_generation * self.trainer.template.sequence_parallel_size
        if step % (rollout * self.trainer.num_iterations):
            logger.warning(
                f"swift_vlrft: {checkpoint.name} was saved between two updates of one rollout, "
                "which no checkpoint holds: the second update answers its prompts anew"
            )
        self.trainer.go_on(step)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.epochs_until_start == 0:
            self.random_state = torch.get_rng_state()
        self.epochs_until_start -= 1

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.random_state is not None:
            torch.set_rng_state(self.random_state)
            self.random_state = None


def skip_epochs(loader: Any, epochs: int) -> None:
    """Draw the row orders of finished epochs, of which the sampler draws one each."""
    while getattr(loader, "batch_sampler", None) is not None:
        loader = loader.batch_sampler
    sampler = getattr(loader, "sampler", None)
    if isinstance(sampler, RepeatSampler) and sampler.shuffle:
        for _ in range(epochs):
            torch.randperm(sampler.num_samples, generator=sampler.generator)


def restore_weights(model: nn.Module, checkpoint: Path) -> None:
    """Load all weights of a checkpoint where transformers' Trainer did not find them.

    It looks for the names of the model in memory, and ``save_pretrained`` writes those of the hub.
    """
    names = {name for file in weight_files(checkpoint) for name in tensor_shapes(file)}
    if hasattr(model, "peft_config") or not names or names <= model.state_dict().keys():
        return
    types = {p.dtype for p in model.parameters()}
    dtype = types.pop() if len(types) == 1 else torch.float32
    saved = type(model).from_pretrained(checkpoint, config=model.config, dtype=dtype)
    model.load_state_dict(saved.state_dict())
    logger.info(f"swift_vlrft: the weights of {checkpoint} are loaded under their names in memory.")
