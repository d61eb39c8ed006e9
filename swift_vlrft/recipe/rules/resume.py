"""Going on from a checkpoint: is it complete, and what does it not bring back?

Without a word here a run that goes on is the run that was not interrupted
(tests/end_to_end/test_exact_resume.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from swift_vlrft.files.checkpoints import why_not
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.rules.model import is_missing
from swift_vlrft.recipe.run import Run

FLAG, ALONE = "resume_from_checkpoint", "resume_only_model"
BEGUN_ANEW = {
    "ignore_data_skip": "the rows begin again at the first",
    "async_generate": "the rollout that was made ahead is made again, with other weights",
}


def checkpoint(run: Run) -> Iterator[Finding]:
    name = run.text(FLAG)
    if not run.trains or not name:
        return
    if is_missing(run, name):
        yield problem(run, FLAG, "resume", f"--{FLAG} {name}: no such folder")
    folder = run.recipe.at(name)
    if folder is None or not os.path.isdir(folder) or run.true(ALONE):
        return
    if why := why_not(folder):
        text = f"--{FLAG} {name} is not complete: {why}. `vlrft resume` finds the newest that is"
        yield problem(run, FLAG, "resume", text)
    elif not any(folder.glob("rng_state*.pth")):
        text = "it was saved with --save_only_model: optimizer, schedule and random numbers"
        yield note(run, FLAG, "resume", f"--{FLAG} {name}: {text} begin anew")


def begun_anew(run: Run) -> Iterator[Finding]:
    if not run.grpo or not run.text(FLAG) or run.true(ALONE):
        return
    for name, text in BEGUN_ANEW.items():
        if run.true(name):
            yield note(run, name, "resume", f"--{name} true with --{FLAG}: {text}")


def moving_reference(run: Run) -> Iterator[Finding]:
    """SyncRefModelCallback (rollout_mixin.py) moves a model that no checkpoint holds."""
    if _has_reference(run) and run.true("sync_ref_model"):
        text = (
            "--sync_ref_model true: checkpoints do not hold the reference model, so a run that "
            "goes on from one has the first one again"
        )
        yield note(run, "sync_ref_model", "resume", text)


def reference(run: Run) -> Iterator[Finding]:
    """sft_args.py puts the checkpoint in place of --model, from which rlhf_args.py takes it."""
    if _has_reference(run) and run.text(FLAG) and run.true(ALONE) and run.lacks("ref_model"):
        text = (
            f"--{ALONE} true: the checkpoint is also the model from which --beta keeps the policy. "
            "To keep the first one add --ref_model with the value of --model"
        )
        yield note(run, ALONE, "resume", text)


def _has_reference(run: Run) -> bool:
    return run.grpo and run.text("tuner_type") == "full" and run.number("beta") > 0


RESUME = (checkpoint, begun_anew, moving_reference, reference)
