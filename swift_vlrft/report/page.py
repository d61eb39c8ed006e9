"""Write the report: one HTML file that needs nothing else, for a screen of any size.

write_report(Path("runs/demo/grpo"), [Path("before"), Path("after")], Path("report.html"))
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swift_vlrft.evaluation.compare import Comparison, Verdict, compare
from swift_vlrft.evaluation.predictions import EvaluationError
from swift_vlrft.evaluation.run import SavedRun, open_runs
from swift_vlrft.evaluation.summary import Summary, summarise
from swift_vlrft.files.writing import write_atomically
from swift_vlrft.report.curves import curve, ends
from swift_vlrft.report.html import render, short
from swift_vlrft.report.run_log import RunLog, parts_of, read_run, reward_means
from swift_vlrft.report.samples import samples
from swift_vlrft.rewards import PAYING, TASK_NAMES

SHOWN = 2
"""The rows of each kind that a page shows."""
K3 = "KL of their log-probabilities, k3; `vlrft agree` compares them by token"
RAN = {
    "resumed from": "resume_from_checkpoint",
    "model": "model",
    "adapters": "adapters",
    "data": "dataset",
    "rewards": "reward_funcs",
    "processes": "global_world_size",
}
"""What of args.json stands at the head of the page, by its name there."""
ZERO_VARIANCE = "all completions of a prompt earn the same, which teaches nothing"


class Evaluated(NamedTuple):
    """One evaluation: the run with its predictions, and their summary."""

    name: str
    run: SavedRun
    summary: Summary


def write_report(
    run_folder: Path, evaluations: Sequence[Path], target: Path, *, count: int = SHOWN
) -> tuple[Path, list[str]]:
    """Write the page, with at most ``count`` rows of each kind; return its path and problems."""
    if len(evaluations) > 2:
        raise EvaluationError(f"{len(evaluations)} evaluations given; one or two can be shown")
    run = read_run(run_folder)
    names = ("before", "after") if len(evaluations) == 2 else ("answer",)
    runs = dict(zip(names, open_runs(evaluations), strict=False))
    evaluated = [
        Evaluated(name, saved, summarise(saved.predictions, saved.gold))
        for name, saved in runs.items()
    ]
    result = None
    if len(runs) == 2:
        before, after = runs.values()
        result = compare(before.predictions, after.predictions, before.gold)
    groups, problems = samples(runs, result, count)
    page = render("run.html", **_page(run, evaluated, result), groups=groups)
    write_atomically(target, page.encode())
    return target, problems


def _page(run: RunLog, evaluated: list[Evaluated], result: Comparison | None) -> dict[str, Any]:
    """The template's values, without the rows."""
    notes = [note for side in evaluated for note in side.summary.notes]
    notes += result.notes if result is not None else []
    task = evaluated[0].summary.task if evaluated else ""
    chief = [PAYING[task][0], TASK_NAMES[task].headline] if task in TASK_NAMES else []
    per_class = "AP" if task == "detection" else "accuracy"
    tables = evaluated[0].summary.by_class if evaluated else {}
    return {
        "title": run_name(run),
        "run": run,
        "verdict": _verdict(run, result),
        "headline": _headline(run, evaluated, result),
        "ran": _ran(run),
        "settings": _settings(run, evaluated),
        "more_settings": sorted(run.settings.items()),
        "evaluated": evaluated,
        "result": result,
        "chief": {*chief, "parse_rate", "empty_prediction_rate"},
        "notes": list(dict.fromkeys(notes)),
        "per_class": per_class,
        "classes": [name for name, row in tables.items() if row.get(per_class) is not None],
        "curves": _curves(run),
        "parts": parts_of(run.series),
    }


def run_name(run: RunLog) -> str:
    """Return --run_name, or the end of the folder's path, which ms-swift takes without one."""
    name = str(run.settings.get("run_name") or "")
    if name and name != run.settings.get("output_dir"):
        return name
    return "/".join(part for part in run.folder.absolute().parts[-2:] if part != "/")


def _ran(run: RunLog) -> list[tuple[str, Any]]:
    """Facts of what ran, as far as the run's folder has them."""
    said = run.settings
    steps = f"{run.steps}{f' of {run.planned}' if run.planned else ''}"
    rows: list[tuple[str, Any]] = [("steps", f"{steps} in {run.elapsed}" if run.elapsed else steps)]
    for name, key in RAN.items():
        if value := said.get(key):
            rows.append((name, ", ".join(map(str, value)) if isinstance(value, list) else value))
    return rows


def _verdict(run: RunLog, result: Comparison | None) -> Verdict:
    """The comparison's verdict, which is not "better" where the run ended in a collapse."""
    if result is None:
        why = "no evaluation before and after was given (--eval BEFORE --eval AFTER)"
        return Verdict("not proven", why)
    collapsed = any(finding.code == "collapse" for finding in run.findings)
    if result.verdict.word == "better" and collapsed:
        return Verdict("not proven", f"{result.verdict.why}; but the run ended in a collapse")
    return result.verdict


def _headline(
    run: RunLog, evaluated: list[Evaluated], result: Comparison | None
) -> list[tuple[str, str]]:
    """The numbers that are written large, each with its text."""
    cards = []
    # Each reward by itself: their weighted sum, which ms-swift logs as "reward", says little.
    means = reward_means(run.series) or {n: run.series[n] for n in ("reward",) if n in run.series}
    for name, points in means.items():
        first, last = map(short, ends([value for _, value in points]))
        cards.append((f"{first} → {last}", f"{name} in training"))
    if result is not None:
        d = result.metrics[result.headline]
        if d.a is not None and d.b is not None:
            bounds = (
                "" if d.low is None else f"; 95 % of the difference: {d.low:+.3f} to {d.high:+.3f}"
            )
            text = f"{result.headline} on {result.rows} rows{bounds}"
            cards.append((f"{d.a:.3f} → {d.b:.3f}", text))
        text = f"of {result.rows} rows; a row is right from a score of 0.5"
        cards.append((f"{len(result.gained)} fixed, {len(result.lost)} broken", text))
    elif evaluated and evaluated[0].summary.best is not None:
        cards.append((f"{evaluated[0].summary.best:.3f}", evaluated[0].summary.headline))
    return cards


def _settings(run: RunLog, evaluated: list[Evaluated]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [("folder", str(run.folder))]
    manifests = {side.name: side.run.manifest for side in evaluated if side.run.manifest}
    installed = {"ms-swift": run.settings.get("swift_version")}
    for name, manifest in manifests.items():
        installed |= manifest.versions
        rows.append((name, f"{manifest.settings.model} on {manifest.settings.dataset}"))
    rows.append(("versions", ", ".join(f"{k} {v}" for k, v in installed.items() if v)))
    return [(name, value) for name, value in rows if value not in (None, [], "", {})]


def _curves(run: RunLog) -> list[str]:
    series = run.series
    lengths = [series.get(f"completions/{which}_length", ()) for which in ("mean", "min", "max")]
    weighted = "the weighted sum of all rewards; band: standard deviation in a group"
    figures: list[tuple[str, Any, dict[str, Any]]] = [
        (
            "reward",
            series.get("reward", ()),
            {"std": series.get("reward_std", ()), "note": weighted},
        )
    ]
    for name, values in sorted(reward_means(series).items()):
        std = series.get(f"rewards/{name}/std", ())
        figures.append((name, values, {"std": std, "note": "band: standard deviation"}))
    for _, values, options in figures:
        options["unit"] = all(0 <= value <= 1 for _, value in values)
    for name in sorted(n for n in series if n.startswith("eval_reward")):
        note = {"note": "on the evaluation set, in training"}
        figures.append((name.replace("_", " ", 1), series[name], note))
    unit = {"unit": True}
    teach = unit | {"note": ZERO_VARIANCE}
    band = {"low": lengths[1], "high": lengths[2], "note": "tokens; band: shortest to longest"}
    figures += [
        ("completion length", lengths[0], band),
        ("cut off at the limit", series.get("completions/clipped_ratio", ()), unit),
        ("zero-variance groups", series.get("frac_reward_zero_std", ()), teach),
        ("KL to the reference", series.get("kl", ()), {}),
        ("gradient norm", series.get("grad_norm", ()), {}),
        ("engine against trainer", series.get("rollout_correction/k3_kl", ()), {"note": K3}),
        *((f"parse rate of {name}", of, unit) for name, of in run.parse_rate.items()),
        *((name, series[name], {}) for name in sorted(series) if name.startswith("memory(")),
    ]
    drawn = [curve(title, values, **options) for title, values, options in figures]
    return [figure for figure in drawn if figure]
