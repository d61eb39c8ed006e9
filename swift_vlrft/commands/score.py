"""``vlrft score``: why is my reward 0?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swift_vlrft.commands.output import number, print_json, say, say_marked, show, table

if TYPE_CHECKING:
    from swift_vlrft.diagnostics.score import Report

LONGEST = 400


def score(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON Lines: ms-swift's completions.jsonl (--log_completions true), or one "
            "object per completion with the keys completion, solution and any further column."
        ),
    ],
    reward: Annotated[
        list[str] | None,
        typer.Option(
            help="A reward by name; repeat for several. Default: the file's rewards, else the "
            "first of each task that its rows state."
        ),
    ] = None,
    external_plugins: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="File with rewards of your own; repeatable."),
    ] = None,
    samples: Annotated[
        int, typer.Option("--show", min=0, help="Completions that lost points to print (0 = none).")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Score completions offline and say why they lost points.

    Example: vlrft score output/v0/completions.jsonl --reward vlrft_detection_iou --show 5

    Exit code 0: no problem; 1: a problem that ruins a run; 2: the input cannot be used.
    """
    from swift_vlrft.diagnostics.score import score_file
    from swift_vlrft.files import records

    own = {}
    if external_plugins:
        from swift_vlrft.swift_plugin.own_rewards import own_rewards

        own = own_rewards(external_plugins)
    report = score_file(file, reward or (), samples, own)
    if as_json:
        print_json(records.as_json(report))
    else:
        print_report(report)
    raise typer.Exit(1 if report.findings or report.flags else 0)


def print_report(report: Report) -> None:
    for finding in report.findings:
        say_marked("problem:", finding, "red")
    headings = ("reward", ">mean", ">std", ">full", ">parsed", ">rows", ">other")
    rewards = table(*headings, title=f"{report.rows} completions")
    for name, summary in report.rewards.items():
        shares = _percent(summary.full), _percent(summary.parse_rate)
        counts = str(summary.scored), str(summary.skipped)
        rewards.add_row(name, number(summary.mean), number(summary.std), *shares, *counts)
    show(rewards)
    if len(report.tasks) > 1:
        of_tasks = ("task", ">completions", ">rewards", ">characters", ">parsed", ">same in group")
        tasks = table(*of_tasks, title="by task")
        for name, of in report.tasks.items():
            values = str(of.completions), number(of.reward), f"{of.length:.0f}"
            rates = _percent(of.parse_rate), _percent(of.zero_variance)
            tasks.add_row(name or "(none)", *values, *rates)
        show(tasks)
    reasons = table("reward", "reason", ">completions", title="why")
    for name, summary in report.rewards.items():
        for code, count in summary.reasons.items():
            reasons.add_row(name, code.replace("_", " "), str(count))
    show(reasons)
    for sample in report.samples:
        say(
            f"line {sample.line}  {sample.reward}  {number(sample.score)}  {sample.reason}",
            f"  solution: {_cut(sample.solution)}",
            f"  completion: {_cut(sample.completion)}",
        )
    say(*(f"note: {note}" for note in report.notes))
    for flag in report.flags:
        say_marked("flag:", flag, "red")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _cut(text: str) -> str:
    half = LONGEST // 2
    return text if len(text) <= LONGEST else text[:half] + " ... " + text[-half:]
