"""VLRFT_AGREEMENT=1: what `vlrft agree` compares, of the rollouts of the training itself.

    agreement/mean  p99  worst  k3_kl  ratio  beyond_two  image_mean  text_mean  skipped

Logged with ms-swift's metrics, from log-probabilities that the engine returns anyway: nothing is
computed anew. Of the main process's share of the last rollouts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from swift.callbacks import TrainerCallback
from swift.utils import get_logger

from swift_vlrft.agreement.figures import figures
from swift_vlrft.agreement.verdict import CLIPPED

logger = get_logger()


class WatchAgreement(TrainerCallback):
    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        self.latest: tuple[Sequence[Any], Sequence[Any]] = ([], [])
        self.said: set[str] = set()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            prepare = self.trainer._prepare_batch_inputs

            def _prepare_batch_inputs(samples: Any) -> Any:
                batches = prepare(samples)
                if self.trainer.model.training:
                    self.latest = samples, batches
                return batches

            self.trainer._prepare_batch_inputs = _prepare_batch_inputs

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not control.should_log or not self.latest[1]:
            return
        for name, value in self._compared(*self.latest).items():
            # ms-swift's GRPO trainer averages these values into its next log line.
            self.trainer._metrics["train"][f"agreement/{name}"].append(value)
        self.latest = [], []

    def _compared(self, samples: Sequence[Any], batches: Sequence[Any]) -> dict[str, float]:
        engine, trainer, skipped = [], [], 0
        for batch in (micro["grpo_batch"] for micro in batches):
            mask, said = batch.completion_mask.bool(), batch.rollout_per_token_logps
            skipped += said is None
            for row, kept in enumerate(mask):
                engine.append([] if said is None else said[row][kept].tolist())
                of_trainer = batch.old_per_token_logps[row][kept].float().tolist()
                trainer.append([] if said is None else of_trainer)
        if skipped:
            self._say(f"{skipped} of {len(batches)} micro-batches: {self._why(samples, batches)}")
        found = {"skipped": skipped / len(batches)}
        every = figures(engine, trainer)
        if every is None:
            return found
        if every.beyond_two > CLIPPED:
            self._say(
                f"{every.beyond_two:.1%} of the tokens have an importance ratio beyond 2: engine "
                "and trainer are not the same model; `vlrft agree RECIPE` looks for the cause"
            )
        found |= {"mean": every.mean, "p99": every.p99, "worst": every.worst, "k3_kl": every.kl}
        found |= {"ratio": every.ratio, "beyond_two": every.beyond_two}
        if len(samples) == len(engine):  # sequence parallelism orders them otherwise
            for name, wanted in (("image_mean", True), ("text_mean", False)):
                rows = [n for n, sample in enumerate(samples) if bool(sample.images) == wanted]
                kind = figures([engine[n] for n in rows], [trainer[n] for n in rows])
                if kind is not None:
                    found[name] = kind.mean
        return found

    def _why(self, samples: Sequence[Any], batches: Sequence[Any]) -> str:
        """Why the engine's log-probabilities are missing (as in ms-swift's build_rollout_logps)."""
        trainer = self.trainer
        corrects = trainer.rollout_importance_sampling_mode is not None
        lost = "the importance correction was skipped" if corrects else "nothing to compare"
        if not trainer.args.use_vllm:
            return f"{lost}: the transformers engine returns no log-probabilities"
        counts = [
            (sum(map(len, sample.rollout_logprobs or [])), int(mask.sum()))
            for sample, mask in zip(
                samples, [m for b in batches for m in b["grpo_batch"].completion_mask], strict=False
            )
        ]
        apart = [(a, b) for a, b in counts if a not in (b, b + 1)]
        if not apart or not any(a for a, _ in counts):
            return f"{lost}: the engine returned no log-probabilities"
        return (
            f"{lost}: the engine returned {apart[0][0]} log-probabilities for {apart[0][1]} tokens"
        )

    def _say(self, text: str) -> None:
        """Log a line once; lines that differ only in numbers count as one."""
        key = re.sub(r"\d+", "#", text)
        if key not in self.said:
            self.said.add(key)
            logger.warning(f"swift_vlrft: VLRFT_AGREEMENT: {text}")
