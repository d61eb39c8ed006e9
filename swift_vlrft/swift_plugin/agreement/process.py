"""Run ms-swift's GRPO up to its first step: the measuring process of `vlrft agree`.

    python -m swift_vlrft.swift_plugin.agreement.process JOB.json --rlhf_type grpo ...

The pipeline of `swift rlhf` builds the run's own model, template, engine and trainer, which is of
a subclass that can compare; a callback measures where the training would begin.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from swift.pipelines.train.rlhf import SwiftRLHF
from swift.trainers.trainer_factory import TrainerFactory
from transformers import TrainerCallback

from swift_vlrft.agreement.measurement import Job, Measurement
from swift_vlrft.agreement.verdict import LIMITS
from swift_vlrft.files.records import read_record, write_record
from swift_vlrft.swift_plugin.agreement.comparison import ComparisonMixin
from swift_vlrft.swift_plugin.agreement.rows import NO_ROWS, choose_rows
from swift_vlrft.swift_plugin.vision_tokens import Forbids

NOT_READ = "the engine was synchronised before the first comparison: it {}"


class StopAfterMeasurement(BaseException):
    """Ends the training where it would begin."""


class MeasureOnly(SwiftRLHF):
    """Runs `swift rlhf` with a trainer that compares, up to its first step."""

    job: Job

    def run(self) -> Any:
        # The plugins are loaded: this is made of the run's own trainer.
        from swift_vlrft.swift_plugin.agreement.trainer import ComparisonTrainer

        name = f"{ComparisonTrainer.__module__}.{ComparisonTrainer.__name__}"
        TrainerFactory.TRAINER_MAPPING["grpo"] = name
        Forbids.forbids = False
        return super().run()

    def _get_trainer_kwargs(self) -> dict[str, Any]:
        return {**super()._get_trainer_kwargs(), "tokens": self.job.tokens}

    def train(self, trainer: Any) -> Any:
        job, args, why = self.job, self.args, ""
        if args.use_vllm and (args.adapters or args.resume_from_checkpoint):
            why = NOT_READ.format("does not read the trainer's adapter or checkpoint")
        elif args.use_vllm and args.sleep_level > 1:
            why = NOT_READ.format("forgets its weights (--sleep_level 2)")

        class Begin(TrainerCallback):
            def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
                measured = measure(trainer, job, why)
                if trainer.accelerator.is_main_process:
                    write_record(Path(job.result), measured)
                raise StopAfterMeasurement

        trainer.add_callback(Begin())
        with suppress(StopAfterMeasurement):
            trainer.train(self._get_resume_checkpoint(trainer))


def measure(trainer: ComparisonMixin, job: Job, why: str) -> Measurement:
    """Return what all processes measured, each on its share of the rows.

    ``why`` says why the engine does not start with the trainer's weights, if it does not.
    """
    numbered, notes = choose_rows(trainer, job.rows)
    loaded, samples = trainer.compare(numbered, sync=bool(why))
    measured = Measurement(
        engine=f"vLLM {trainer.vllm_mode}" if trainer.args.use_vllm else "transformers",
        model=str(trainer.accelerator.unwrap_model(trainer.model).model_dir),
        dtype=str(trainer.dtype).removeprefix("torch."),
        loaded=loaded,
        notes=[*notes, *filter(None, [why])],
    )
    if trainer.args.use_vllm:
        limit = LIMITS[measured.dtype].mean
        measured.synced, note = trainer.compare_moved(numbered, samples, limit)
        measured.notes.append(note)
    return measured


def main(arguments: Sequence[str]) -> None:
    MeasureOnly.job = job = read_record(Path(arguments[0]), Job)
    sys.argv = [sys.argv[0], *arguments[1:]]  # the plugin reads them, too
    try:
        MeasureOnly().main()
    except (Exception, SystemExit) as error:
        text = str(error)
        if isinstance(error, (AssertionError, LookupError)) or not text:  # a word or nothing
            text = f"{type(error).__name__} {text}".strip()
        if isinstance(error, StopIteration):  # ms-swift looks for columns in the first row
            text = NO_ROWS
        if os.environ.get("LOCAL_RANK", "0") == "0":
            Path(job.result).with_suffix(".error").write_text(text)
        raise


if __name__ == "__main__":
    main(sys.argv[1:])
