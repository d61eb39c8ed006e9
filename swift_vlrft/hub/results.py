"""The evaluations before and after a training, for the card of the model.

    found_results(opened, Path("eval/before"), Path("eval/after"), [])    [Result(...)]

They must be of this checkpoint, of the model that it was trained from, and of one data set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from swift_vlrft.evaluation.compare import Comparison, compare
from swift_vlrft.evaluation.queries import Settings
from swift_vlrft.evaluation.run import SavedRun, open_runs, stamps
from swift_vlrft.evaluation.summary import Summary, summarise
from swift_vlrft.hub.checkpoint import Checkpoint, CheckpointError
from swift_vlrft.hub.cleaning import cached_id, name_of

SIDES = ("before", "after")
SAME = ("dataset", "split", "task", "box_format", "protocol", "categories", "max_queries", "seed")
"""The settings in which two evaluations must agree to be compared."""


@dataclass
class Result:
    """One task: its summary after the training, and where there is one, before it."""

    settings: Settings
    after: Summary
    before: Summary | None = None
    compared: Comparison | None = None
    versions: dict[str, str] = field(default_factory=dict)


def found_results(
    opened: Checkpoint, before: Path | None, after: Path | None, notes: list[str]
) -> list[Result]:
    """``before`` and ``after``: folders of `vlrft eval`, or of several tasks each; both None: where
    `vlrft demo` leaves them, if they are of this checkpoint. EvaluationError or CheckpointError if
    one is of another model or another set.
    """
    if after is None and before is not None:
        raise CheckpointError("--before without --after: what is published is the model after")
    if after is None:
        sides = [opened.run.parent / "eval" / side for side in SIDES]
        if not all(side.is_dir() for side in sides):
            return []
        try:
            return _results(opened, *sides)
        except (OSError, ValueError) as error:
            notes.append(f"the evaluations in {sides[0].parent} are left out: {error}")
            return []
    return _results(opened, before, after)


def _results(opened: Checkpoint, before: Path | None, after: Path) -> list[Result]:
    last = _by_name(after, "--after")
    first = _by_name(before, "--before") if before is not None else {}
    if before is not None and len(last) == len(first) == 1:
        first = dict(zip(last, first.values(), strict=True))
    if before is not None and first.keys() != last.keys():
        raise CheckpointError(
            f"--before {before} holds evaluations of {', '.join(sorted(first))}, --after {after} "
            f"of {', '.join(sorted(last))}; give both of the same tasks"
        )
    return [_result(opened, first.get(name), path) for name, path in last.items()]


def _by_name(folder: Path, flag: str) -> dict[str, Path]:
    """The folder, or those of several tasks in it, by the task's name; "" for one."""
    if not folder.exists():
        raise CheckpointError(f"{flag} {folder} does not exist (from {Path.cwd()})")
    if (folder / "run.json").is_file():
        return {"": folder}
    below = {one.parent.name: one.parent for one in sorted(folder.glob("*/run.json"))}
    if not below:
        raise CheckpointError(
            f"{flag} {folder} is no folder of `vlrft eval`: it has no run.json, which says "
            "what model answered"
        )
    return below


def _result(opened: Checkpoint, before: Path | None, after: Path) -> Result:
    (last,) = open_runs([after])
    settings = _settings(last)
    if not _is_folder(settings.model, opened.folder):
        raise CheckpointError(
            f"--after {after} is of the model {settings.model}, not of {opened.folder}; evaluate "
            "this checkpoint with `vlrft eval`, or publish that one"
        )
    manifest = last.manifest
    assert manifest is not None
    now = stamps(settings).get("model")
    if now not in (None, manifest.files.get("model")):
        raise CheckpointError(
            f"the weights of {opened.folder} have changed since {after} was made; evaluate again"
        )
    result = Result(settings, summarise(last.predictions, last.gold), versions=manifest.versions)
    if before is None:
        return result
    (first,) = open_runs([before])
    earlier = _settings(first)
    if _is_folder(earlier.model, opened.folder):
        raise CheckpointError(f"--before {before} is of {opened.folder} too: that is after")
    if not _is_start(earlier.model, opened):
        raise CheckpointError(
            f"--before {before} is of the model {earlier.model}, but the training started from "
            f"{opened.args.get('model')}; evaluate that one"
        )
    for name in SAME:
        one, other = getattr(earlier, name), getattr(settings, name)
        if name == "dataset" and Path(one).resolve() == Path(other).resolve():
            continue
        if one != other:
            raise CheckpointError(
                f"--before {before} and --after {after} are of different sets: {name} {one} and "
                f"{other}; evaluate both models on the same rows"
            )
    result.before = summarise(first.predictions, first.gold)
    result.compared = compare(first.predictions, last.predictions, last.gold)
    return result


def _settings(run: SavedRun) -> Settings:
    assert run.manifest is not None  # _by_name has seen its run.json
    return run.manifest.settings


def _is_folder(recorded: str, folder: Path) -> bool:
    """Whether a recorded model is this folder; where it is not there any more (another machine,
    another working directory), whether run and checkpoint are called the same.
    """
    path = Path(recorded)
    if path.exists():
        return path.resolve() == folder.resolve()
    return path.parts[-2:] == folder.resolve().parts[-2:]


def _is_start(recorded: str, opened: Checkpoint) -> bool:
    """Whether a recorded model is the one that training started from."""
    started = opened.args.get("model")
    if not isinstance(started, str) or recorded == started:
        return True
    if opened.base is not None and opened.base in (recorded, cached_id(recorded)):
        return True
    for place in {started, str(opened.args.get("model_dir") or started)}:
        if Path(place).exists() and Path(recorded).exists():
            if Path(place).resolve() == Path(recorded).resolve():
                return True
        elif name_of(place) == name_of(recorded):
            return True
    return False
