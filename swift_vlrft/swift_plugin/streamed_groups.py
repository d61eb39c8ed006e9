"""GRPO on sets larger than memory and disk: the groups of a set whose rows are read by number.

TRL's sampler draws a permutation of all rows, which for ten million takes half a gigabyte a process
and reads a row group for every row. This one gives the same groups in an order that keeps to a few
row groups at a time; everything after it (which process gets which part of a group, skipping what a
resumed run has seen) is ms-swift's and accelerate's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelerate.utils import gather_object
from swift.rlhf_trainers import GRPOTrainer
from swift.sequence_parallel import sequence_parallel

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.sharded_set import ShardedSet


class GroupSampler:
    """``rows`` different numbers, each ``copies`` times, all of it ``repeats`` times: what TRL's
    RepeatSampler gives (mini_repeat_count, batch_size, repeat_count), in the order of the shards.
    """

    def __init__(
        self,
        data: ShardedSet,
        *,
        copies: int,
        rows: int,
        repeats: int,
        shuffle: bool,
        seed: int,
    ) -> None:
        if len(data) < rows:  # transformers would end after step 0, as a run that has trained
            raise DataError(
                f"{data.path} has {len(data)} rows, and a generation takes {rows} prompts "
                "(--generation_batch_size / --num_generations): not one step would be trained"
            )
        self.data, self.copies, self.rows, self.repeats = data, copies, rows, repeats
        self.shuffle, self.seed = shuffle, seed

    def set_epoch(self, epoch: int) -> None:
        self.data.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.data) // self.rows * self.rows * self.copies * self.repeats

    def __iter__(self) -> Iterator[int]:
        order = self.data.shards.order([self.seed, self.data.epoch], shuffle=self.shuffle)
        chunk: list[int] = []
        for window in order:
            for number in window.tolist():
                chunk.append(number)
                if len(chunk) == self.rows:
                    batch = [number for number in chunk for _ in range(self.copies)]
                    for _ in range(self.repeats):
                        yield from batch
                    chunk = []


class StreamedGroups:
    """What a GRPO trainer does otherwise where its set is a ShardedSet."""

    def _get_train_sampler(self: Any, train_dataset: Any = None) -> Any:
        data = train_dataset if train_dataset is not None else self.train_dataset
        if not isinstance(data, ShardedSet):
            return super()._get_train_sampler(train_dataset)  # type: ignore[misc]
        sizes = gather_object([len(data)])
        if len(set(sizes)) > 1:
            raise DataError(
                f"{data.path}: the processes of this run find different numbers of rows: {sizes}. "
                "Some see files that others do not, so groups would mix prompts"
            )
        return GroupSampler(
            data,
            copies=self.num_generations,
            rows=self.args.generation_batch_size // self.num_generations,
            repeats=self.num_iterations
            * self.args.steps_per_generation
            * (sequence_parallel.world_size if self.template.sequence_parallel_size > 1 else 1),
            shuffle=self.shuffle_dataset,
            seed=self.args.seed,
        )


class StreamingGRPOTrainer(StreamedGroups, GRPOTrainer):
    """Replaces ``GRPOTrainer`` where ``--streaming true`` is given."""
