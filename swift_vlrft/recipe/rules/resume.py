"""Check a run that resumes a checkpoint: is it complete, and what does it not bring back?

Without a word here a run that goes on is the run that was not interrupted
(tests/end_to_end/test_exact_resume.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from swift_vlrft.files.checkpoints import good_checkpoints, why_not
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.rules.model import no_such_path
from swift_vlrft.recipe.run import Run

FLAG, ALONE = "resume_from_checkpoint", "resume_only_model"
BEGUN_ANEW = {
    "ignore_data_skip": "the rows begin again at the first",
    "dynamic_sample": "rows drawn in place of groups without variance begin again at the first",
    "async_generate": "the rollout that was made ahead is made again, with other weights",
}


def checkpoint(run: Run) -> Iterator[Finding]:
    name = run.text(FLAG)
    if not run.trains or not name:
        return
    yield from no_such_path(run, FLAG, "resume", name)
    folder = run.recipe.at(name)
    if folder is None or not os.path.isdir(folder) or run.true(ALONE):
        return
    if why := why_not(folder):
        good = good_checkpoints(folder) or good_checkpoints(folder.parent)
        instead = f"Give {good[-1]}" if good else "No other in or beside it is complete: begin anew"
        text = f"--{FLAG} {name} is not complete: {why}. {instead}"
        yield problem(run, FLAG, "resume", text)
    elif not any(folder.glob("rng_state*.pth")):
        text = f"--{FLAG} {name} has only weights (--save_only_model): all else begins anew"
        yield note(run, FLAG, "resume", text)


def begun_anew(run: Run) -> Iterator[Finding]:
    if not run.grpo or not run.text(FLAG) or run.true(ALONE):
        return
    for name, text in BEGUN_ANEW.items():
        if run.true(name):
            yield note(run, name, "resume", f"--{name} true with --{FLAG}: {text}")


def reference(run: Run) -> Iterator[Finding]:
    """SyncRefModelCallback (rollout_mixin.py) moves a model that no checkpoint holds; sft_args.py
    puts the checkpoint in place of --model, from which rlhf_args.py takes the reference.
    """
    if not run.grpo or run.text("tuner_type") != "full" or run.number("beta") <= 0:
        return
    if run.true("sync_ref_model"):
        text = "--sync_ref_model true: checkpoints lack that model: a resumed run has the first"
        yield note(run, "sync_ref_model", "resume", text)
    if run.text(FLAG) and run.true(ALONE) and run.omits("ref_model"):
        text = f"--{ALONE} true: the checkpoint is --beta's reference, too, without --ref_model"
        yield note(run, ALONE, "resume", text)


RESUME = (checkpoint, begun_anew, reference)
