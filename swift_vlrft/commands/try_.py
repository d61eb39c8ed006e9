"""``vlrft try`` takes a data set of one's own to a verdict, on a CPU or one GPU."""

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from msgspec.structs import replace

from swift_vlrft.commands.compare import COLOURS
from swift_vlrft.commands.output import print_json, say, say_marked
from swift_vlrft.families import family_of
from swift_vlrft.files.environment import hide_bars
from swift_vlrft.memory.scripts import scripts


def try_(
    data: Annotated[
        Path,
        typer.Argument(
            help="A set on disk in any form: COCO's instances.json, a ViRFT folder, Parquet."
        ),
    ],
    family: Annotated[
        str, typer.Option(help="Family of the tiny model: qwen2_5_vl, qwen3_vl, internvl, ...")
    ] = "internvl",
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder to write; default: runs/try/DATA.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="GRPO steps.")] = 60,
    device: Annotated[
        Literal["auto", "cuda", "cpu"],
        typer.Option(help="Where to train; auto: on a GPU if one is free, else on the CPU."),
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Take your own data through a whole run on a CPU or one GPU, in minutes.

    Example: vlrft try instances_train.json --family qwen2_5_vl

    It checks the rows, holds out a part by picture, trains a tiny model with GRPO and the rewards
    that fit, evaluates it before and after, and writes the report. Give the command again to
    continue an interrupted trial after its last complete stage.
    """
    from swift_vlrft.demo.card import WARM_STEPS, NoCard, free_card
    from swift_vlrft.demo.trial import TrialConfig, run_trial

    hide_bars()
    there = data.absolute() if data.exists() else data  # else an address, or an error names it
    folder = out or Path("runs", "try", data.stem if data.suffix else data.name)
    config, card = TrialConfig(str(there), family, steps=steps), None
    if device != "cpu":
        try:
            card = free_card(family, config.side)
        except NoCard as error:
            if device == "cuda":
                raise
            say(f"on the CPU: {error}", error=True)
        else:
            config = replace(config, device=card.name, warm_steps=WARM_STEPS)
    summary = run_trial(config, folder, card)
    if as_json:
        return print_json(summary)
    print_trial(summary, folder)
    task, dataset = next(iter(summary["tasks"])), shlex.quote(str(folder / "data"))
    say(
        "This shows that data, prompts and rewards work together, not what a real model will "
        "reach.",
        "A script for real GPUs:",
        f"  vlrft recipe new run.sh --model {example_model(family)} --task {task} "
        f"--dataset {dataset} --gpus 4x24",
    )


def example_model(family: str) -> str:
    """Return the model of the first shipped recipe for that family."""
    models = (script.model for script in scripts().values())
    of_family = (m for m in models if (of := family_of(name=m)) and of.name == family)
    return next(of_family, "MODEL")


def print_trial(summary: dict[str, Any], folder: Path) -> None:
    for note in summary["notes"]:
        say_marked("note:", note, "yellow")
    for task, of in summary["tasks"].items():
        say_marked(f"{task}: {of['verdict']}:", of["why"], COLOURS[of["verdict"]])
    form = summary["format"]
    for of in summary["tasks"].values():
        say(
            f"{of['reward']} {of['first']:.2f} -> {of['last']:.2f}, vlrft_format "
            f"{form['first']:.2f} -> {form['last']:.2f}: sampled answers, {summary['steps']} "
            f"steps, {summary['seconds']:.0f} s in all"
        )
        for metric in of["held_out"]:
            low, high = metric["difference_95"]
            bounds = "" if low is None or high is None else f" (95 %: {low:+z.2f} to {high:+z.2f})"
            before, after = metric["before"], metric["after"]
            say(
                f"held-out images ({of['rows']} rows): {metric['metric']} {before:.2f} -> "
                f"{after:.2f}, difference {after - before:+z.2f}{bounds}"
            )
    say(f"{folder}/summary.json", f"report: {folder}/report.html")
