"""The card of a trained model: what ran, on what, and what came of it.

model_files(open_checkpoint(Path("runs/demo")), "hf", "me/shapes").files["README.md"]
"""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.licence import licence_data, stated_licence
from swift_vlrft.evaluation.predictions import EvaluationError
from swift_vlrft.files.markdown import front_matter, inline
from swift_vlrft.hub.checkpoint import Checkpoint
from swift_vlrft.hub.cleaning import clean_text, name_of, without_secrets
from swift_vlrft.hub.dataset_card import Card, licence_text
from swift_vlrft.hub.recipe_facts import hub_sets, names_of, recipe_lines, reward_rows
from swift_vlrft.hub.results import Result, found_results
from swift_vlrft.hub.templates import render
from swift_vlrft.report.html import short
from swift_vlrft.report.reward_picture import draw_rewards
from swift_vlrft.report.run_log import read_run
from swift_vlrft.rewards import REWARDS

PICTURE = "assets/rewards.png"
LIBRARIES = ("swift-vlrft", "ms-swift", "torch", "transformers", "vllm", "peft")
NEEDS_PLUGIN = ("chatglm4v", "cogagent", "gemma4", "internvl")
"""Model types, or what they begin with, that ms-swift loads or prompts rightly with our plugin."""
LICENCE = "{name}, as stated for the base model."
NO_LICENCE = (
    "Nobody has stated a licence for this model. What the base model's makers and the makers of "
    "the training data allow applies to it: ask them before you use or pass it on."
)
PAGES = {"hf": "https://huggingface.co/", "modelscope": "https://modelscope.cn/models/"}


def model_files(
    opened: Checkpoint,
    hub: str,
    repo: str,
    *,
    before: Path | None = None,
    after: Path | None = None,
    licence: str | None = None,
) -> Card:
    """Card, picture of the rewards, and the checkpoint's files that belong. ``licence``: of the
    base model, instead of what its card says, where that lies on this machine.

    CheckpointError or EvaluationError if an evaluation is of another model or set.
    """
    card = Card({})
    results = found_results(opened, before, after, card.notes)
    stated = licence_data(licence or _licence_of_base(opened))
    card.licence = stated.get("license")
    curves, steps, logged = _curves(opened, card.notes)
    if curves:
        picture = io.BytesIO()
        draw_rewards(curves, picture)
        card.files[PICTURE] = picture.getvalue()
    if not results:
        card.notes.append(
            "no evaluation is in the card; `vlrft eval` makes one, --before and --after give them"
        )
    if not stated:
        card.notes.append(
            "no licence is stated, and the card says so; state the base model's with --license, "
            "for instance --license apache-2.0"
        )
    if opened.base is None:
        card.notes.append(
            "the card names no base model: training started from a folder; --base-model ORG/NAME "
            "names the one on a hub"
        )
    args = opened.args
    values = {
        "hub": hub,
        "repo": repo,
        "picture": PICTURE if curves else "",
        "base": opened.base,
        "base_page": PAGES[hub] + (opened.base or ""),
        "start": clean_text(name_of(str(args.get("model")))),
        "is_adapter": opened.is_adapter,
        "kind": _kind(opened).upper() if args.get("rlhf_type") else "supervised fine-tuning",
        "trainer": "swift rlhf" if args.get("rlhf_type") else "swift sft",
        "steps": opened.step or steps,
        "of_steps": steps if opened.step and steps > opened.step else None,
        "data": names_of(args, "dataset"),
        "rewards": reward_rows(args),
        "ours": any(name in REWARDS for name, _, _ in reward_rows(args)),
        "ends": logged,
        "recipe": "\n".join(recipe_lines(args)),
        "results": [_shown(one) for one in results],
        "versions": _versions(opened, results),
        "infer": infer_command(opened, hub, repo, results),
        "evaluate": evaluate_command(repo, results),
        "licence": licence_text(stated, LICENCE) or NO_LICENCE,
        "code": sorted(name for name in opened.files if name.endswith(".py")),
    }
    head = _head(opened, hub, repo, results) | stated
    text = f"{front_matter(head)}\n# {inline(repo.split('/')[1])}\n\n{render('model.md', **values)}"
    card.files = {"README.md": text.encode()} | card.files | opened.files
    for why in dict.fromkeys(opened.left_out.values()):
        names = [name for name, other in opened.left_out.items() if other == why]
        card.notes.append(f"not published: {', '.join(names)} ({why})")
    return card


def _head(opened: Checkpoint, hub: str, repo: str, results: list[Result]) -> dict[str, Any]:
    """What the hubs read: keys of both, then those of one."""
    sets = hub_sets(opened.args)
    relation = {"base_model_relation": "adapter" if opened.is_adapter else "finetune"}
    head: dict[str, Any] = {
        "library_name": "peft" if opened.is_adapter else "transformers",
        "base_model": opened.base,
        **(relation if opened.base else {}),
        "datasets": sets,
        "tags": ["ms-swift", "visual-rft", *_kind_tags(opened)],
        "metrics": list(dict.fromkeys(one.after.headline for one in results)),
    }
    if hub == "modelscope":
        # https://modelscope.cn/docs/models/card
        head |= {
            "tasks": ["image-text-to-text"],
            "frameworks": ["pytorch"],
            "domain": ["multi-modal"],
        }
        return head
    head |= {"pipeline_tag": "image-text-to-text"}
    if results:
        head["model-index"] = [
            {"name": repo.split("/")[1], "results": [_indexed(one) for one in results]}
        ]
    return head


def _kind_tags(opened: Checkpoint) -> list[str]:
    return [_kind(opened), *(["lora"] if opened.is_adapter else [])]


def _kind(opened: Checkpoint) -> str:
    kind = str(opened.args.get("rlhf_type") or "sft")
    return kind if kind.isalnum() else "grpo"


def _indexed(result: Result) -> dict[str, Any]:
    """A result as the model-index of Hugging Face has it."""
    name = clean_text(name_of(str(result.settings.dataset)))
    return {
        "task": {"type": "image-text-to-text", "name": result.after.task},
        "dataset": {"name": name, "type": name, "split": result.settings.split or "test"},
        "metrics": [
            {
                "type": result.after.headline,
                "name": result.after.headline,
                "value": result.after.best,
            }
        ],
    }


def _curves(
    opened: Checkpoint, notes: list[str]
) -> tuple[dict[str, list[float]], int, dict[str, tuple[str, str]]]:
    """The rewards of every step up to this checkpoint, how many steps the run logged, and of each
    reward the means of the first and the last tenth of them.
    """
    try:
        run = read_run(opened.run, completions=False)
    except EvaluationError:
        notes.append(f"no curve: {opened.run} holds no logging.jsonl")
        return {}, 0, {}
    last = opened.step or run.steps
    series = {
        name.removeprefix("rewards/").removesuffix("/mean"): [
            value for step, value in values if step <= last
        ]
        for name, values in run.series.items()
        if name.startswith("rewards/") and name.endswith("/mean")
    }
    series = {name: values for name, values in series.items() if values}
    ends = {}
    for name, values in series.items():
        tenth = max(1, len(values) // 10)
        first, final = (short(sum(part) / tenth) for part in (values[:tenth], values[-tenth:]))
        ends[name] = first, final
    return series, run.steps, ends


def _shown(result: Result) -> dict[str, Any]:
    """Rows of the table of one evaluation: metric, before, after, difference, each with its
    interval.
    """
    rows = []
    for name, after in result.after.metrics.items():
        before = result.before.metrics.get(name) if result.before else None
        difference = result.compared.metrics.get(name) if result.compared else None
        change = "-"
        if difference is not None and difference.difference is not None:
            change = f"{difference.difference:+.3f}"
            if difference.low is not None and difference.high is not None:
                change += f" ({difference.low:+.3f} to {difference.high:+.3f})"
        rows.append((name, _measure(before), _measure(after), change))
    rows.sort(key=lambda row: row[0] != result.after.headline)
    settings, compared = result.settings, result.compared
    notes = [*result.after.notes, *(compared.notes if compared else [])]
    if compared and (compared.only_a or compared.only_b):
        notes.append(
            f"{compared.only_a} rows were answered before only, {compared.only_b} after only; the "
            "difference is of those in both"
        )
    return {
        "task": result.after.task,
        "set": clean_text(name_of(str(settings.dataset))),
        "rows": result.after.rows,
        "images": result.after.images,
        "both": result.before is not None,
        "metrics": rows,
        "temperature": settings.temperature,
        "notes": [clean_text(note) for note in dict.fromkeys(notes)],
    }


def _measure(measure: Any) -> str:
    if measure is None or measure.value is None:
        return "-"
    bounds = "" if measure.low is None else f" ({measure.low:.3f} to {measure.high:.3f})"
    return f"{measure.value:.3f}{bounds}"


def _versions(opened: Checkpoint, results: list[Result]) -> list[tuple[str, str]]:
    """As the run, the checkpoint and its evaluation recorded them; not what is installed here."""
    import json

    found: dict[str, Any] = {}
    for result in results:
        found |= result.versions
    for file, key, name in (
        ("config.json", "transformers_version", "transformers"),
        ("adapter_config.json", "peft_version", "peft"),
    ):
        content = opened.files.get(file)
        if isinstance(content, bytes):
            found[name] = json.loads(content).get(key) or found.get(name)
    found["ms-swift"] = opened.args.get("swift_version") or found.get("ms-swift")
    return [(name, clean_text(str(found[name]))) for name in LIBRARIES if found.get(name)]


def _licence_of_base(opened: Checkpoint) -> str | None:
    """What the base model's own card says, where it lies on this machine."""
    for name in ("model_dir", "model"):
        place = opened.args.get(name)
        if isinstance(place, str) and (found := stated_licence(Path(place) / "README.md")):
            return found
    return None


def infer_command(opened: Checkpoint, hub: str, repo: str, results: list[Result]) -> str:
    """Download and `swift infer`, with the image size of the training. ms-swift reads the system
    prompt from the args.json of a folder, not from that of an id.
    """
    args, name = without_secrets(opened.args), repo.split("/")[1]
    flags = [f"--model {opened.base} --adapters {name}" if opened.is_adapter else f"--model {name}"]
    for flag in ("model_type", "template"):
        if isinstance(args.get(flag), str) and re.fullmatch(r"\w+", args[flag], re.ASCII):
            flags.append(f"--{flag} {args[flag]}")
    if isinstance(args.get("max_pixels"), int):
        flags.append(f"--max_pixels {args['max_pixels']}")
    if str(args.get("model_type")).startswith(NEEDS_PLUGIN):
        flags.append('--external_plugins "$(vlrft plugin)"')
    load = f"modelscope download --model {repo} --local_dir {name}"
    if hub == "hf":
        load = f"export USE_HF=1\nhf download {repo} --local-dir {name}"
    limits = [f"export {one}" for one in _limits(results)]
    return "\n".join([load, *limits, " \\\n    ".join(["swift infer", *flags])])


def evaluate_command(repo: str, results: list[Result]) -> str:
    """`vlrft eval` of the downloaded folder, behind the block of ``infer_command``."""
    forms = {one.after.task: one.settings.box_format for one in results} or {"TASK": "norm1000"}
    sets = {task: "SET" if form == "norm1000" else f"SET:{form}" for task, form in forms.items()}
    name = repo.split("/")[1]
    return "\n".join(f"vlrft eval {name} {data} --task {task}" for task, data in sets.items())


def _limits(results: list[Result]) -> list[str]:
    found = {
        f"{key}={shlex.quote(str(value))}"
        for one in results
        for key, value in one.settings.resolution.items()
    }
    return sorted(found)
