"""The measuring process of `vlrft agree`: ms-swift's GRPO run up to its first step, then no
training.

    python -m swift_vlrft.swift_plugin.agreement.process JOB.json --rlhf_type grpo ...
    (or under torchrun)

Model, template, engine, sharding and weight synchronisation are those of the run itself: the
pipeline of `swift rlhf` builds its trainer and prepares it, and a callback measures where the
training would begin. ``swift_vlrft.agreement`` judges what was measured.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from swift.pipelines.train.rlhf import SwiftRLHF
from transformers import TrainerCallback

from swift_vlrft.agreement.figures import noise, of_rows
from swift_vlrft.agreement.measurement import Job, Measurement
from swift_vlrft.files.records import read_record, write_record
from swift_vlrft.swift_plugin.agreement.causes import NOT_READ, conditions, facts
from swift_vlrft.swift_plugin.agreement.cpu import prepare_cpu
from swift_vlrft.swift_plugin.agreement.rows import NO_ROWS, choose_rows
from swift_vlrft.swift_plugin.agreement.sides import Sides
from swift_vlrft.swift_plugin.agreement.weights import move_weights


class Measured(BaseException):
    """Ends the training where it would begin."""


class Measuring(SwiftRLHF):
    job: Job

    def train(self, trainer: Any) -> Any:
        job = self.job

        class Begin(TrainerCallback):
            def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
                found = measure(trainer, job)
                if trainer.accelerator.is_main_process:
                    write_record(Path(job.result), found)
                raise Measured

        trainer.add_callback(Begin())
        with suppress(Measured):
            trainer.train(self._get_resume_checkpoint(trainer))


def measure(trainer: Any, job: Job) -> Measurement:
    """Every process takes its share of the rows; all return what all found."""
    sides = Sides(trainer, job)
    sides.rows, notes = choose_rows(sides, job.rows)
    loaded = None
    if sides.vllm and trainer.args.sleep_level < 2:
        loaded = of_rows(sides.compare(sync=False)[0])
    rows, samples = sides.compare()
    found = Measurement(
        engine=f"vLLM {trainer.vllm_mode}" if sides.vllm else "transformers",
        model=str(sides.model.model_dir),
        rows=rows,
        noise=noise(rows, sides.resolution),
        loaded=loaded,
        facts=facts(sides),
        adapter=hasattr(sides.model, "peft_config"),
        notes=notes,
    )
    if sides.vllm and not sides.colocated:
        found.notes.append(NOT_READ)
    if sides.resolution > 2**-20:
        found.notes.append(
            "the trainer's log-probabilities are of half precision, coarser than the engine's: "
            f"two that are neighbours at -12 are {8 * sides.resolution:.2g} apart"
        )
    found.tried = conditions(sides, samples)
    if sides.vllm:
        found.moved = move_weights(sides, samples, found)
    return found


def main(arguments: Sequence[str]) -> None:
    job = read_record(Path(arguments[0]), Job)
    sys.argv = [sys.argv[0], *arguments[1:]]  # the plugin reads them, too
    if not torch.cuda.is_available():
        prepare_cpu(arguments)
    Measuring.job = job
    try:
        Measuring().main()
    except (Exception, SystemExit) as error:
        if os.environ.get("RANK", "0") == "0":
            text = str(error)
            if isinstance(error, (AssertionError, LookupError)) or not text:  # a word or nothing
                text = f"{type(error).__name__} {text}".strip()
            # ms-swift looks for columns in the first row; datasets, for a split.
            if isinstance(error, StopIteration) or "corresponds to no data" in text:
                text = NO_ROWS
            Path(job.result).with_suffix(".error").write_text(text)
        raise


if __name__ == "__main__":
    main(sys.argv[1:])
