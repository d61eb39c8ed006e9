"""The report: one HTML file that needs nothing but itself, for a screen of any size.

    write_report(Path("runs/demo/grpo"), [Path("before"), Path("after")], Path("report.html"))

It runs no script, and its content policy lets a browser load nothing. Everything that a model, a
data set or a setting says is escaped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from swift_vlrft.diagnostics.reasons import Reason, explain
from swift_vlrft.evaluation.compare import Comparison, compare
from swift_vlrft.evaluation.predictions import EvaluationError, Predictions, read_predictions
from swift_vlrft.evaluation.questions import Settings, is_annotation_file
from swift_vlrft.evaluation.run import versions
from swift_vlrft.evaluation.summary import Measure, Summary, summarise
from swift_vlrft.evaluation.tables import PRIMARY
from swift_vlrft.files.jsonl import read_json
from swift_vlrft.report.curves import curve, short
from swift_vlrft.report.run_log import RunLog, Series, read_run
from swift_vlrft.report.samples import Side, card, pictures

MOST_BYTES = 10_000_000
SHOWN = 6
MOST_NOTES = 20
SETTINGS = (
    *("model", "adapters", "dataset", "val_dataset", "reward_funcs", "reward_weights"),
    *("tuner_type", "torch_dtype", "num_generations", "max_completion_length", "max_steps"),
    *("num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("learning_rate", "beta", "temperature", "use_vllm", "vllm_mode", "deepspeed", "seed"),
)


@dataclass
class Evaluated:
    """One evaluation: its predictions, what they come to, and the run that made them."""

    name: str
    predictions: Predictions
    summary: Summary
    settings: dict[str, Any]
    versions: dict[str, str]


def write_report(
    run_folder: Path,
    evaluations: Sequence[Path],
    target: Path,
    *,
    samples: int = SHOWN,
    bootstrap: int = 1000,
) -> tuple[Path, list[str]]:
    """Write ``target`` whole or not at all; the path, and what could not be shown."""
    if len(evaluations) > 2:
        raise EvaluationError(f"{len(evaluations)} evaluations given; one or two can be shown")
    run = read_run(run_folder)
    names = ("before", "after") if len(evaluations) == 2 else ("answer",)
    shown = [
        _evaluated(path, name, bootstrap) for path, name in zip(evaluations, names, strict=False)
    ]
    result = None
    if len(shown) == 2:
        result = _comparison(shown, evaluations[0], bootstrap)
    problems: list[str] = []
    count = samples
    while True:
        cards, problems = _cards(shown, result, count)
        text = _page(run, shown, result, cards)
        # A lone surrogate, which a model or a setting may hold, cannot be written as UTF-8.
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        if len(text.encode()) <= MOST_BYTES or not count:
            break
        count //= 2  # fewer pictures rather than a page that no mail takes
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f".{target.name}.{os.getpid()}")
    half.write_text(text, encoding="utf-8")
    half.replace(target)
    return target, problems


def _evaluated(path: Path, name: str, bootstrap: int) -> Evaluated:
    file = path / "predictions.jsonl" if path.is_dir() else path
    record: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    annotations, categories, protocol = _gold_of(settings)
    manifest = file.parent / "run.json"
    if manifest.is_file():
        try:
            record = read_json(manifest)
            settings = record.get("settings") or {}
            annotations, categories, protocol = _gold_of(settings)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EvaluationError(f"{manifest} cannot be read ({error!r})") from error
    predictions = read_predictions(file, settings.get("task"))
    summary = summarise(
        predictions,
        annotations=annotations,
        categories=categories,
        protocol=protocol,
        bootstrap=bootstrap,
    )
    return Evaluated(name, predictions, summary, settings, record.get("versions") or {})


def _gold_of(settings: dict[str, Any]) -> tuple[Path | None, tuple[str, ...], str | None]:
    if not settings:
        return None, (), None
    made = Settings.from_dict(settings)
    if not is_annotation_file(made.dataset):
        return None, (), None
    return made.dataset, made.categories, made.protocol or "all"


def _comparison(shown: list[Evaluated], path: Path, bootstrap: int) -> Comparison:
    annotations, categories, protocol = _gold_of(shown[0].settings)
    return compare(
        shown[0].predictions,
        shown[1].predictions,
        annotations=annotations,
        categories=categories,
        protocol=protocol,
        bootstrap=bootstrap,
    )


# ---- samples ---------------------------------------------------------------------------------


def _cards(
    shown: list[Evaluated], result: Comparison | None, count: int
) -> tuple[dict[str, list[str]], list[str]]:
    """The cards by heading."""
    if not shown or not count:
        return {}, []
    task = shown[0].predictions.task
    by_id = [{row.id: row for row in one.predictions.rows} for one in shown]
    if result is not None:
        gains = [flip.id for flip in result.changed if flip.b > flip.a][:count]
        losses = [flip.id for flip in reversed(result.changed) if flip.b < flip.a][:count]
        picked = {"Largest gain": gains, "Largest loss": losses}
        if not gains and not losses:
            picked = {"Nothing changed": [row.id for row in shown[0].predictions.rows[:count]]}
    else:
        reasons = [(_reason(task, row), row.id) for row in shown[0].predictions.rows]
        scored = [(reason.score, key) for reason, key in reasons if reason.score is not None]
        picked = {
            "Lowest scores": [key for _, key in sorted(scored)[:count]],
            "Highest scores": [key for _, key in sorted(scored, reverse=True)[:count]],
        }
    ids = {key for keys in picked.values() for key in keys}
    urls, problems = pictures([by_id[0][key] for key in ids], shown[0].settings)
    cards = {}
    for heading, keys in picked.items():
        cards[heading] = [
            card(
                task,
                [
                    Side(one.name, rows[key], _reason(task, rows[key]))
                    for one, rows in zip(shown, by_id, strict=True)
                    if key in rows
                ],
                urls.get(key),
            )
            for key in keys
        ]
    return cards, problems


def _reason(task: str, row: Any) -> Reason:
    extra = {"aliases": row.aliases} if row.aliases is not None else {}
    return explain(PRIMARY[task], row.completion, row.solution, **extra)


# ---- the page --------------------------------------------------------------------------------


def _page(
    run: RunLog,
    shown: list[Evaluated],
    result: Comparison | None,
    cards: dict[str, list[str]],
) -> str:
    model = Path(str(run.settings.get("model", run.folder.name))).name
    title = f"{model}: {run.steps} steps"
    parts = [f"<h1>{escape(title)}</h1>", _headline(run, shown, result), _what_ran(run, shown)]
    if shown:
        parts.append(_evaluation(shown, result))
    parts += [_curves(run), _why(run)]
    for heading, made in cards.items():
        legend = ""
        if shown[0].predictions.task in ("detection", "grounding"):
            legend = '<p class="legend"><i class="gold"></i>gold'
            legend += "".join(f'<i class="{one.name}"></i>{one.name}' for one in shown) + "</p>"
        body = "\n".join(made) or "<p>none</p>"
        parts.append(f"<section><h2>{escape(heading)}</h2>{legend}{body}</section>")
    head, tail = _PAGE.split("{body}")
    return head.replace("{title}", escape(title)) + "\n".join(parts) + tail


def _headline(run: RunLog, shown: list[Evaluated], result: Comparison | None) -> str:
    said = []
    # Each reward by itself: their weighted sum, which ms-swift logs as "reward", says little.
    means = {name.split("/")[1]: values for name, values in run.series.items() if _is_mean(name)}
    if "reward" in run.series and not means:
        means = {"reward": run.series["reward"]}
    for name, values in means.items():
        tenth = max(1, len(values) // 10)
        ends = [sum(v / tenth for _, v in part) for part in (values[:tenth], values[-tenth:])]
        first, last = (f"{v:.2f}" if abs(v) < 100_000 else short(v) for v in ends)
        said.append(f"<div><b>{first} &rarr; {last}</b>{escape(name)} in training</div>")
    if result is not None:
        d = result.metrics[result.headline]
        if d.a is not None and d.b is not None:
            bounds = f", 95 %: {d.low:+.2f} to {d.high:+.2f}" if d.low is not None else ""
            said.append(
                f"<div><b>{d.a:.2f} &rarr; {d.b:.2f}</b>{escape(result.headline)} on "
                f"{result.rows} rows (difference {d.b - d.a:+.2f}{bounds})</div>"
            )
        said.append(
            f"<div><b>+{len(result.gained)} &minus;{len(result.lost)}</b>"
            "rows became right and wrong</div>"
        )
    elif shown and shown[0].summary.best is not None:
        said.append(
            f"<div><b>{shown[0].summary.best:.2f}</b>{escape(shown[0].summary.headline)}</div>"
        )
    return f'<div class="headline">{"".join(said)}</div>' if said else ""


def _is_mean(name: str) -> bool:
    return name.startswith("rewards/") and name.endswith("/mean")


def _what_ran(run: RunLog, shown: list[Evaluated]) -> str:
    rows = [("folder", str(run.folder))]
    for name in SETTINGS:
        value = run.settings.get(name)
        if value not in (None, [], "", {}):
            rows.append((name, _said(value)))
    found = {"ms-swift": run.settings.get("swift_version")} | (
        shown[-1].versions if shown else versions()
    )
    rows.append(("versions", ", ".join(f"{k} {v}" for k, v in found.items() if v)))
    for one in shown:
        if one.settings:
            rows.append((one.name, f"{one.settings.get('model')} on {one.settings.get('dataset')}"))
    others = sorted(k for k in run.settings if k not in SETTINGS)
    table = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows)
    more = "".join(f"<dt>{escape(k)}</dt><dd>{escape(_said(run.settings[k]))}</dd>" for k in others)
    every = f"<details><summary>{len(others)} more settings</summary><dl>{more}</dl></details>"
    return f"<section><h2>What ran</h2><dl>{table}</dl>{every if others else ''}</section>"


def _said(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 300 else text[:300] + " ..."


def _evaluation(shown: list[Evaluated], result: Comparison | None) -> str:
    first = shown[0].summary
    kind = f"{first.task}, protocol {first.protocol}" if first.protocol else first.task
    if result is not None:
        head = "<tr><th>metric<th>before<th>after<th>difference<th>95 %</tr>"
        body = ""
        for name, d in result.metrics.items():
            bounds = "-" if d.low is None or d.high is None else f"{d.low:+.3f} to {d.high:+.3f}"
            diff = "-" if d.difference is None else f"{d.difference:+.3f}"
            mark = ' class="sure"' if d.sure else ""
            body += (
                f"<tr{mark}><th>{escape(name)}<td>{_num(d.a)}<td>{_num(d.b)}<td>{diff}"
                f"<td>{bounds}</tr>"
            )
        rows = f"{result.rows} rows in both, {result.images} pictures; paired bootstrap"
    else:
        head = "<tr><th>metric<th>value<th>95 %</tr>"
        body = "".join(
            f"<tr><th>{escape(name)}<td>{_num(m.value)}<td>{_bounds(m)}</tr>"
            for name, m in first.metrics.items()
        )
        rows = f"{first.rows} rows, {first.images} pictures; bootstrap"
    if result is not None and result.other_prompts:
        rows += f"; {result.other_prompts} rows were asked in other words after"
    problems = "".join(
        f"<li>{escape(one.name)}: {count} {escape(kind_of)} "
        f"({escape(', '.join(one.summary.named.get(kind_of, [])))})</li>"
        for one in shown
        for kind_of, count in one.summary.problems.items()
    )
    said = [note for one in shown for note in one.summary.notes]
    said += result.notes if result is not None else []
    notes = "".join(f"<li>{escape(note)}</li>" for note in dict.fromkeys(said))
    return (
        f"<section><h2>Evaluation: {escape(kind)}</h2><p>{rows}, {first.bootstrap} draws.</p>"
        f'<div class="wide"><table>{head}{body}</table></div>'
        f"<ul>{notes}{problems}</ul>{_classes(shown)}</section>"
    )


def _classes(shown: list[Evaluated]) -> str:
    metric = "AP" if shown[0].summary.task == "detection" else "accuracy"
    tables = [one.summary.by_class for one in shown]
    names = [n for n in tables[0] if tables[0][n].get(metric) is not None]
    if not names:
        return ""
    heads = "".join(f"<th>{one.name}" for one in shown)
    rows = "".join(
        f"<tr><th>{escape(name)}"
        + "".join(f"<td>{_num(table.get(name, {}).get(metric))}" for table in tables)
        + "</tr>"
        for name in names[:200]
    )
    what = "category" if metric == "AP" else "class"
    return (
        f"<details><summary>{metric} by {what} ({len(names)})</summary>"
        f'<div class="wide"><table><tr><th>{what}{heads}</tr>{rows}</table></div></details>'
    )


def _num(value: float | None) -> str:
    return "-" if value is None else short(value)


def _bounds(measure: Measure) -> str:
    if measure.low is None or measure.high is None:
        return "-"
    return f"{measure.low:.3f} to {measure.high:.3f}"


def _curves(run: RunLog) -> str:
    drawn = []
    of = run.series

    def add(title: str, name: str, **more: Any) -> None:
        if of.get(name):
            drawn.append(curve(title, of[name], **more))

    unit = all(0 <= value <= 1 for _, value in of.get("reward", ()))
    spread = of.get("reward_std", ())
    note = "the weighted sum of all rewards; band: spread in a group"
    add("reward", "reward", spread=spread, unit=unit, note=note)
    for name in sorted(of):
        if _is_mean(name):
            title = name.split("/")[1]
            around: Series = of.get(f"rewards/{title}/std", [])
            unit = all(0 <= value <= 1 for _, value in of[name])
            add(title, name, spread=around, unit=unit, note="band: standard deviation")
    for name in sorted(of):
        if name.startswith("eval_reward"):
            add(name.replace("_", " ", 1), name, note="on the evaluation set, in training")
    add(
        "completion length",
        "completions/mean_length",
        low=of.get("completions/min_length", ()),
        high=of.get("completions/max_length", ()),
        note="tokens; band: shortest to longest",
    )
    add("cut off at the limit", "completions/clipped_ratio", unit=True)
    add("groups without spread", "frac_reward_zero_std", unit=True, note="they teach nothing")
    for name, points in run.parse_rate.items():
        drawn.append(curve(f"parse rate of {name}", points, unit=True))
    add("KL to the reference", "kl")
    add("gradient norm", "grad_norm")
    for name in sorted(of):
        if "memory" in name.lower():
            add(name, name)
    if not drawn and not run.notes:
        return ""
    said = "".join(f"<li>{escape(note)}</li>" for note in run.notes[:MOST_NOTES])
    if len(run.notes) > MOST_NOTES:
        said += f"<li>and {len(run.notes) - MOST_NOTES} more</li>"
    notes = f"<ul>{said}</ul>" if said else ""
    curves = f'<div class="curves">{"".join(drawn)}</div>'
    return f"<section><h2>Training</h2>{notes}{curves}</section>"


def _why(run: RunLog) -> str:
    if not run.reasons:
        return ""
    rows = ""
    for name, codes in run.reasons.items():
        total = sum(codes.values())
        for code, count in sorted(codes.items(), key=lambda pair: -pair[1]):
            rows += (
                f"<tr><th>{escape(name)}<td>{escape(code.replace('_', ' '))}<td>{count}"
                f"<td>{count / total:.0%}</tr>"
            )
    return (
        "<section><h2>Why completions lost points</h2>"
        f"<p>{run.completions} completions of the run, as <code>vlrft score</code> reads them.</p>"
        '<div class="wide"><table><tr><th>reward<th>reason<th>completions<th>share</tr>'
        f"{rows}</table></div></section>"
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root { color-scheme: light dark; --line: #1565c0; --before: #d32f2f; --after: #2e7d32; }
@media (prefers-color-scheme: dark) { :root { --line: #64b5f6; --before: #ef9a9a;
  --after: #81c784; } }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 1.8rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 0; }
h4 { font-size: .9rem; margin: .7rem 0 .1rem; }
h4.before { color: var(--before); }
h4.after, h4.answer { color: var(--after); }
p { margin: .2rem 0; }
.headline { display: flex; flex-wrap: wrap; gap: .8rem; }
.headline div { flex: 1 1 14rem; padding: .6rem .9rem; border: 1px solid #8886;
  border-radius: .5rem; font-size: .9rem; }
.headline b { display: block; font-size: 1.6rem; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: .1rem .8rem;
  font-size: .88rem; margin: .3rem 0; }
dt { opacity: .7; overflow-wrap: anywhere; }
dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #8884;
  white-space: nowrap; }
th:first-child { text-align: left; font-weight: 500; }
tr.sure td { font-weight: 700; }
ul { font-size: .88rem; padding-left: 1.2rem; }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(19rem, 100%), 1fr));
  gap: 1rem; }
figure { margin: 0; min-width: 0; }
figcaption { font-size: .88rem; overflow-wrap: anywhere; }
figcaption small { display: block; opacity: .7; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; opacity: .75; }
.grid { stroke: currentColor; opacity: .18; }
.line { fill: none; stroke: var(--line); stroke-width: 1.8; stroke-linejoin: round; }
.band { fill: var(--line); opacity: .18; }
.dot { fill: var(--line); }
article { display: flex; flex-wrap: wrap; gap: 1rem; padding: .9rem 0;
  border-top: 1px solid #8886; align-items: flex-start; }
.picture { position: relative; flex: 0 1 22rem; min-width: 12rem; overflow: hidden; }
.picture img { display: block; width: 100%; }
.text { flex: 1 1 18rem; min-width: 0; }
.facts { font-size: .85rem; opacity: .75; overflow-wrap: anywhere; }
.box { position: absolute; box-sizing: border-box; }
.box.gold { border: 3px solid #fff; outline: 1px solid #000; }
.box.before { border: 2px dashed #ff1744; }
.box.after, .box.answer { border: 2px solid #00e676; }
.legend { font-size: .88rem; }
.legend i { display: inline-block; width: 1.3em; height: .8em; margin: 0 .4em 0 .9em;
  box-sizing: border-box; background: #777; }
.legend .gold { border: 3px solid #fff; outline: 1px solid #000; margin-left: 0; }
.legend .before { border: 2px dashed #ff1744; }
.legend .after, .legend .answer { border: 2px solid #00e676; }
pre { margin: .2rem 0; padding: .4rem .6rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font-size: .82rem; background: #8882; border-radius: .3rem; max-height: 20rem; overflow: auto; }
summary { cursor: pointer; font-size: .88rem; padding: .3rem 0; }
@media (max-width: 34rem) { dl { display: block; } dd { margin: 0 0 .3rem .8rem; }
  .picture { flex-basis: 100%; } }
</style>
</head>
<body>
{body}
</body>
</html>
"""
