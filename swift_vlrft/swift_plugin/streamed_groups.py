"""GRPO on a stream repeats the rows as TRL's RepeatSampler, which makes groups, repeats those of a
set with a length. As in ms-swift's supervised training, the first process reads for all of them.
"""

from __future__ import annotations

from typing import Any

from datasets import IterableDataset
from swift.dataloader import DataLoaderDispatcher
from swift.sequence_parallel import sequence_parallel
from torch.utils.data import DataLoader

from swift_vlrft.swift_plugin.streaming import RepeatedRows


class StreamedGroups:
    """Has a GRPO trainer sample groups from a stream."""

    def get_train_dataloader(self: Any, skip_batches: int = 0) -> Any:
        args = self.args
        if not isinstance(self.train_dataset, IterableDataset):
            return super().get_train_dataloader()  # type: ignore[misc]
        split = sequence_parallel.world_size if self.template.sequence_parallel_size > 1 else 1
        rows = RepeatedRows(
            self.train_dataset,
            copies=self.num_generations,
            prompts=args.generation_batch_size // self.num_generations,
            repeats=self.num_iterations * args.steps_per_generation * split,
            epoch=args.seed,  # ms-swift replaces rows by those of a loader with another seed
        )
        loader = DataLoader(
            rows,
            batch_size=self._train_batch_size * args.steps_per_generation,
            collate_fn=self.data_collator,
            num_workers=args.dataloader_num_workers,
        )
        if self.num_generations != args.num_generations:
            return loader  # which replaces single rows, in one process and not in another
        return DataLoaderDispatcher(loader, self.accelerator.device, skip_batches=skip_batches)
