"""``vlrft demo``: what `make demo` runs."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.output import print_json, say

REWARD = """\
{name} {first:.2f} -> {last:.2f}{more}: sampled answers, {steps} steps, {seconds:.0f} s in all
held-out images ({held_out_rows}): {held_out_before:.2f} -> {held_out_after:.2f}, greedy answers
evaluation: {metric} {metric_before:.2f} -> {metric_after:.2f}, difference {change:+.2f}{bounds}"""
FILES = """\
{folder}/summary.json  {folder}/reward.png  {folder}/answers.png
report: {folder}/report.html"""


def demo(
    task: Annotated[str, typer.Option(help="colours, coins or mixed.")] = "colours",
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder; for tasks other than colours, OUT/TASK.")
    ] = Path("runs/demo"),
    steps: Annotated[
        int | None, typer.Option(min=1, help="GRPO steps; default: the task's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Watch a real `swift rlhf` GRPO run learn on a CPU, in minutes.

    Example: vlrft demo --task coins
    """
    from swift_vlrft.demo.run import run_demo
    from swift_vlrft.demo.tasks import known_task

    demo_task = known_task(task)
    folder = out / task if task != "colours" else out
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # as Ctrl-C: the training is stopped, too
            signal.signal(number, lambda received, _: sys.exit(128 + received))
    summary = run_demo(demo_task, folder, steps=steps)
    if as_json:
        print_json(summary)
        return
    form = summary["format"]
    more = f", vlrft_format {form['first']:.2f} -> {form['last']:.2f}"
    for name, of in summary["rewards"].items():
        low, high = of["difference_95"]
        bounds = "" if low is None or high is None else f" (95 %: {low:+.2f} to {high:+.2f})"
        change = of["metric_after"] - of["metric_before"]
        rest = {"name": name, "more": more, "change": change, "bounds": bounds}
        say(*REWARD.format(**summary | of | rest).splitlines())
    say(*FILES.format(folder=folder).splitlines())
