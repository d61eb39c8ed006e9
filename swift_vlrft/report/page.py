"""The report: one HTML file that needs nothing but itself, for a screen of any size.

write_report(Path("runs/demo/grpo"), [Path("before"), Path("after")], Path("report.html"))
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swift_vlrft.evaluation.compare import Comparison, Verdict, compare
from swift_vlrft.evaluation.predictions import EvaluationError
from swift_vlrft.evaluation.run import SavedRun, open_runs, versions
from swift_vlrft.evaluation.summary import Summary, summarise
from swift_vlrft.files.writing import write_atomically
from swift_vlrft.report.curves import curve
from swift_vlrft.report.html import render, short
from swift_vlrft.report.run_log import RunLog, Series, read_run
from swift_vlrft.report.samples import samples

MOST_BYTES = 10_000_000
SHOWN = 6
SETTINGS = (
    *("model", "adapters", "dataset", "val_dataset", "reward_funcs", "reward_weights"),
    *("tuner_type", "torch_dtype", "num_generations", "max_completion_length", "max_steps"),
    *("num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("learning_rate", "beta", "temperature", "use_vllm", "vllm_mode", "deepspeed", "seed"),
)


class Evaluated(NamedTuple):
    """One evaluation: the run with its predictions, and their summary."""

    name: str
    run: SavedRun
    summary: Summary


def write_report(
    run_folder: Path, evaluations: Sequence[Path], target: Path, *, count: int = SHOWN
) -> tuple[Path, list[str]]:
    """Write ``target``; its path, and what could not be shown. At most ``count`` rows of the
    largest gain and loss are shown, fewer if the page would be too large to be sent.
    """
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
    page = _page(run, evaluated, result)
    while True:
        groups, problems = samples(runs, result, count)
        text = render("run.html", **page, groups=groups).encode()
        if len(text) <= MOST_BYTES or not count:
            break
        count //= 2
    write_atomically(target, text)
    return target, problems


def _page(run: RunLog, evaluated: list[Evaluated], result: Comparison | None) -> dict[str, Any]:
    """What the template needs, but the rows."""
    model = Path(str(run.settings.get("model", run.folder.name))).name
    notes = [note for one in evaluated for note in one.summary.notes]
    notes += result.notes if result is not None else []
    per_class = "AP" if evaluated and evaluated[0].summary.task == "detection" else "accuracy"
    tables = evaluated[0].summary.by_class if evaluated else {}
    return {
        "title": f"{model}: {run.steps} steps",
        "run": run,
        "verdict": _verdict(run, result),
        "headline": _headline(run, evaluated, result),
        "settings": _settings(run, evaluated),
        "more_settings": sorted((k, v) for k, v in run.settings.items() if k not in SETTINGS),
        "evaluated": evaluated,
        "result": result,
        "notes": list(dict.fromkeys(notes)),
        "per_class": per_class,
        "classes": [name for name, row in tables.items() if row.get(per_class) is not None],
        "curves": _curves(run),
    }


def _verdict(run: RunLog, result: Comparison | None) -> Verdict:
    """Of the comparison; a run that ended in a collapse did not make the model better."""
    if result is None:
        why = "no evaluation before and after was given (--eval BEFORE --eval AFTER)"
        return Verdict("not proven", why)
    if result.verdict.word == "better" and any(one.code == "collapse" for one in run.findings):
        return Verdict("not proven", f"{result.verdict.why}; but the run ended in a collapse")
    return result.verdict


def _headline(
    run: RunLog, evaluated: list[Evaluated], result: Comparison | None
) -> list[tuple[str, str]]:
    """What is written large, and what it is."""
    found = []
    # Each reward by itself: their weighted sum, which ms-swift logs as "reward", says little.
    means = _means(run) or {n: run.series[n] for n in ("reward",) if n in run.series}
    for name, values in means.items():
        tenth = max(1, len(values) // 10)
        ends = [sum(v / tenth for _, v in part) for part in (values[:tenth], values[-tenth:])]
        first, last = (f"{v:.2f}" if abs(v) < 100_000 else short(v) for v in ends)
        found.append((f"{first} → {last}", f"{name} in training"))
    if result is not None:
        d = result.metrics[result.headline]
        if d.a is not None and d.b is not None:
            bounds = f", 95 %: {d.low:+.2f} to {d.high:+.2f}" if d.low is not None else ""
            difference = f"(difference {d.b - d.a:+.2f}{bounds})"
            text = f"{result.headline} on {result.rows} rows {difference}"
            found.append((f"{d.a:.2f} → {d.b:.2f}", text))
        changed = f"+{len(result.gained)} −{len(result.lost)}"
        found.append((changed, "rows became right and wrong"))
    elif evaluated and evaluated[0].summary.best is not None:
        found.append((f"{evaluated[0].summary.best:.2f}", evaluated[0].summary.headline))
    return found


def _means(run: RunLog) -> dict[str, Series]:
    """The means of every reward, by its name."""
    names = [n for n in run.series if n.startswith("rewards/") and n.endswith("/mean")]
    return {name.split("/")[1]: run.series[name] for name in names}


def _settings(run: RunLog, evaluated: list[Evaluated]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [("folder", str(run.folder))]
    rows += [(name, run.settings[name]) for name in SETTINGS if name in run.settings]
    manifests = {one.name: one.run.manifest for one in evaluated if one.run.manifest is not None}
    found = {"ms-swift": run.settings.get("swift_version")}
    found |= [versions(), *(manifest.versions for manifest in manifests.values())][-1]
    for name, manifest in manifests.items():
        rows.append((name, f"{manifest.settings.model} on {manifest.settings.dataset}"))
    rows.append(("versions", ", ".join(f"{k} {v}" for k, v in found.items() if v)))
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
    for name, values in sorted(_means(run).items()):
        std = series.get(f"rewards/{name}/std", ())
        figures.append((name, values, {"std": std, "note": "band: standard deviation"}))
    figures += _tasks(series)
    for _, values, options in figures:
        options["unit"] = all(0 <= value <= 1 for _, value in values)
    for name in sorted(n for n in series if n.startswith("eval_reward")):
        note = {"note": "on the evaluation set, in training"}
        figures.append((name.replace("_", " ", 1), series[name], note))
    unit = {"unit": True}
    teach = unit | {"note": "they teach nothing"}
    band = {"low": lengths[1], "high": lengths[2], "note": "tokens; band: shortest to longest"}
    figures += [
        ("completion length", lengths[0], band),
        ("cut off at the limit", series.get("completions/clipped_ratio", ()), unit),
        ("zero-variance groups", series.get("frac_reward_zero_std", ()), teach),
        ("KL to the reference", series.get("kl", ()), {}),
        ("gradient norm", series.get("grad_norm", ()), {}),
        *_agreement(series),
        *_parse_rates(run),
        *((name, series[name], {}) for name in sorted(series) if "memory" in name.lower()),
    ]
    drawn = [curve(title, values, **options) for title, values, options in figures]
    return [figure for figure in drawn if figure]


def _parse_rates(run: RunLog) -> list[tuple[str, Any, dict[str, Any]]]:
    """Of the completions that were logged; a run on several tasks has them by task."""
    if any(name.startswith("tasks/") for name in run.series):
        return []
    return [(f"parse rate of {name}", of, {"unit": True}) for name, of in run.parse_rate.items()]


def _tasks(series: dict[str, Series]) -> list[tuple[str, Any, dict[str, Any]]]:
    """What a run on several tasks logged of each (swift_plugin/tasks.py)."""
    drawn = {
        "reward": ("reward", "weighted sum of its rewards"),
        "length": ("completion length", "mean, tokens"),
        "parse_rate": ("parse rate", ""),
        "zero_variance": ("zero-variance groups", "they teach nothing"),
        "share": ("share of the completions", ""),
    }
    names = dict.fromkeys(n.split("/", 1)[1].rsplit("/", 1)[0] for n in series if n[:6] == "tasks/")
    return [
        (f"{task}: {title}", series.get(f"tasks/{task}/{figure}", ()), {"note": note})
        for figure, (title, note) in drawn.items()
        for task in names
    ]


def _agreement(series: dict[str, Series]) -> list[tuple[str, Any, dict[str, Any]]]:
    """What ms-swift's --log_rollout_offpolicy_metrics true logged."""
    note = {"note": "KL of their log-probabilities, k3; `vlrft agree` compares them by token"}
    return [("engine against trainer", series.get("rollout_correction/k3_kl", ()), note)]
