"""Check a run that resumes a checkpoint: is it there, and complete?"""

from __future__ import annotations

import os
from collections.abc import Iterator

from swift_vlrft.files.checkpoints import good_checkpoints, why_not
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.rules.model import no_such_path
from swift_vlrft.recipe.run import Run

FLAG, ALONE = "resume_from_checkpoint", "resume_only_model"


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
