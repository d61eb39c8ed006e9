"""Check the model, the size of its images, and the files that flags name: do they exist, and what
would they run?
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.syntax import is_a_path
from swift_vlrft.families import family_of
from swift_vlrft.families.family import Family
from swift_vlrft.families.fixed import Budget
from swift_vlrft.families.image_resize import ImageResize
from swift_vlrft.families.resize import ImageRule
from swift_vlrft.files.jsonl import LineError, read_json
from swift_vlrft.recipe.plugins import clash, read_plugin
from swift_vlrft.recipe.rules.finding import PLACEHOLDER, Finding, left_out, note, problem
from swift_vlrft.recipe.run import Run

EXPERTS = re.compile(r"-a\d+(?:\.\d+)?b(?![a-z])", re.IGNORECASE)
"""In the name of a mixture of experts, the parameters that a token uses: 30B-A3B."""
PLUGINS = ("external_plugins", "custom_register_path")
SHADOWS = ("datasets", "swift", "json", "torch", "transformers", "vllm", "trl", "peft", "typing")
FILES = (
    ("system", ".txt", "Give the text itself, or a file"),
    ("deepspeed", ".json", "Give zero2, zero3, zero3_offload, or a file"),
)


def no_such_path(
    run: Run, flag: str, rule: str, name: str, why: str = "does not exist"
) -> Iterator[Finding]:
    """Report a path that does not exist, in a note where the script may make it."""
    path = run.recipe.at(name)
    if path is None or path.exists() or PLACEHOLDER.search(name):
        return
    if run.recipe.may_make(name):
        text = f"--{flag} {name} does not exist yet; an earlier command may make it"
        yield note(run, flag, rule, text)
    else:
        yield problem(run, flag, rule, f"--{flag} {name} {why} (from {run.recipe.folder})")


def family(run: Run) -> Family | None:
    """Return the model's family by --model_type, its folder, or its name. A run that resumes a
    checkpoint may name that alone.
    """
    name = run.text("model") or run.text("resume_from_checkpoint") or ""
    return family_of(model_type=run.text("model_type"), name=_known_folder(run, name))


def _known_folder(run: Run, name: str) -> str:
    """Return the path of the folder of that name, if there is one, else the name."""
    folder = run.recipe.at(name) if name else None
    return str(folder) if folder is not None and folder.is_dir() else name


def resize_of(run: Run, known: Family | None) -> ImageResize | None:
    """Return how the family resizes images under the run's limits; None if it is not known."""
    if known is None or known.images is None:
        return None
    name = run.text("model") or run.text("resume_from_checkpoint") or ""
    limits = run.recipe.environment | run.limits_in_kwargs
    low, high = known.images.limits(_known_folder(run, name), limits)
    return ImageResize(known.name, low, high, run.optional("max_pixels"))


def checkpoint_arguments(run: Run) -> dict[str, Any]:
    """Return the args.json of the model's folder, which a training of ms-swift has written."""
    folder = run.recipe.at(name) if (name := run.text("model")) else None
    try:
        arguments = read_json(folder / "args.json") if folder else {}
    except (OSError, LineError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def model(run: Run) -> Iterator[Finding]:
    if not run.trains:
        return
    if run.omits("model", "resume_from_checkpoint"):
        yield problem(run, "model", "model", "--model is missing")
    name = run.text("model")
    if name == "":
        yield problem(run, "model", "model", "--model has no value")
    told, its = family(run), family_of(name=_known_folder(run, name or ""))
    if told and its and told is not its:
        text = f"--model_type {run.text('model_type')} is not the family of {name}, {its.name}: "
        text += "boxes and images may be taken for another's. Leave it out"
        yield note(run, "model_type", "model", text)
    named = [("model", name or ""), *(("adapters", path) for path in run.texts("adapters"))]
    for flag, path in named:
        if is_a_path(path):
            yield from no_such_path(run, flag, "model", path)


def hub_ids(run: Run) -> Iterator[Finding]:
    """Find ids that are almost those of models that ms-swift registers: a slip of two letters, in
    which no digit changes (that would be another version or size).
    """
    known = {name.lower(): name for name in run.facts.models}
    for flag in ("model", "ref_model", "reward_model", "teacher_model"):
        for name in run.texts(flag) or filter(None, [run.text(flag)]):
            folder = run.recipe.at(name)
            if is_a_path(name) or name.lower() in known or (folder and folder.exists()):
                continue
            owner, _, model = name.lower().rpartition("/")
            alike = [key for key in known if abs(len(key) - len(name)) <= 2 and owner]
            alike = [key for key in alike if _digits(key) == _digits(name)]
            alike = [k for k in alike if difflib.get_close_matches(owner, [k.partition("/")[0]])]
            alike = difflib.get_close_matches(name.lower(), alike, n=1, cutoff=0.92)
            bare = [key for key in known if key.rpartition("/")[2] == model and not owner]
            if near := alike or bare:
                text = f"--{flag} {name}: no model of this name is known; did you mean "
                yield problem(run, flag, "model", f"{text}{known[near[0]]}?")


def _digits(text: str) -> str:
    return "".join(re.findall(r"\d", text))


def images(run: Run) -> Iterator[Finding]:
    known = family(run) if run.trains else None
    if known is None or known.images is None:
        return
    if not known.images.adjustable:
        yield from _fixed(run, known.name, known.images)
    elif run.omits("max_pixels"):
        seen = ("MAX_PIXELS", "IMAGE_MAX_TOKEN_NUM")
        if not known.images.from_environment:
            text = "ms-swift does not hand MAX_PIXELS to this family: give --max_pixels 401408"
            yield note(run, "model", "max-pixels", text)
        elif not any(map(run.variable, seen)) and run.omits("model_kwargs"):
            text = "MAX_PIXELS is not set: an image may take 16,384 tokens; with 401408 it is 512"
            yield note(run, "model", "max-pixels", text)


def _fixed(run: Run, name: str, rule: ImageRule) -> Iterator[Finding]:
    """Images of sizes that no flag changes, in rows that are shorter."""
    rule = rule.of(run.text("model"))
    tokens, most = (rule.tokens(*s) + rule.marks(*s) for s in ((1, 1), rule.largest()))
    # Of a budget a thin image leaves most unused: no row is too long or too short for sure.
    longest = None if isinstance(rule, Budget) else run.optional("max_length")
    if longest and longest <= tokens:
        text = (
            f"--max_length {longest}: an image of {name} takes {tokens} tokens or more, so no row "
            f"is that short; for {longest} tokens of text give {longest + tokens}"
        )
        yield problem(run, "max_length", "lengths", text)
    elif longest and longest <= most:
        text = (
            f"--max_length {longest}: an image of {name} takes up to {most} tokens, fewer with a "
            "lower max_patches in the checkpoint's preprocessor_config.json"
        )
        yield note(run, "max_length", "lengths", text)
    flags = [] if run.omits("max_pixels") else ["--max_pixels"]
    for limit in (*flags, *run.image_limits):
        text = f"{limit} saves nothing: {name} sees every image {rule.seen}"
        yield note(run, limit.lstrip("-"), "max-pixels", text)


def liger(run: Run) -> Iterator[Finding]:
    known = family(run) if run.trains else None
    if known and not known.memory.liger and run.true("use_liger_kernel"):
        text = f"--use_liger_kernel: liger has no kernels for {known.name}: GRPO stops, or its "
        text += "loss is wrong"
        flag = run.given["use_liger_kernel"]
        yield problem(run, flag, "liger", text, left_out(run.recipe.text, flag))


def experts(run: Run) -> Iterator[Finding]:
    """ZeRO-3 is slow here, not stuck: register.py names the blocks of experts of these families to
    DeepSpeed (leaf modules), and in transformers 5 the experts of a layer are one module anyway.
    """
    name = Path(run.text("model") or "").name if run.trains else ""
    if not EXPERTS.search(name) or not (run.text("deepspeed") or "").startswith("zero3"):
        return
    text = f"{name} under ZeRO-3: each pass gathers all experts of a layer on every GPU, which is "
    text += "slow; `megatron rlhf` gathers none (modelscope/ms-swift#9719)"
    yield note(run, "deepspeed", "experts", text)


def given_plugins(run: Run) -> list[tuple[str, str, Path | None]]:
    """Return each plugin file that a flag names, with the flag, and its path if known."""
    named = [(name, value) for name in PLUGINS for value in run.texts(name)]
    return [(name, value, run.recipe.at(value)) for name, value in named]


def plugins(run: Run) -> Iterator[Finding]:
    for name, value, path in given_plugins(run):
        why = None
        if path is None:
            continue
        if path.is_dir():
            why = f"it is a folder; ms-swift takes a file, as {value.rstrip('/')}/__init__.py"
        elif not path.is_file():
            why = "is no file; ms-swift's wheel has no examples"
            why += '. Ours is "$(vlrft plugin)"' if path.name == "vlrft.py" else ""
            yield from no_such_path(run, name, "plugin", value, why)
            continue
        elif path.stem in SHADOWS:
            why = f"Python would find it in place of the package {path.stem}. Rename it"
        else:
            read = read_plugin(path)
            why = f"Python cannot read it: {read.fault}" if read.fault else clash(read)
        if why:
            yield problem(run, name, "plugin", f"--{name} {value}: {why}")


def code_and_pickles(run: Run) -> Iterator[Finding]:
    for flag in ("model", "adapters", "ref_model", "reward_model"):
        for name in filter(None, run.texts(flag) or (run.text(flag),)):
            folder = run.recipe.at(name)
            if folder is None or not folder.is_dir():
                continue
            known, option = family(run), f"--{flag} {name}"
            if (code := own_code(folder)) and not (known and known.own_classes):
                text = f"{option} brings code that will run ({', '.join(code)}): read it first"
                yield note(run, flag, "trust", text)
            if pickles := only_pickles(folder):
                text = f"{option}: pickles ({', '.join(pickles)}) can hold code; take safetensors"
                yield note(run, flag, "trust", text)


def own_code(folder: Path) -> list[str]:
    """Return the first three Python files that auto_map names in the folder's JSON.

    Those of other repositories are among them.
    """
    files: dict[str, None] = {}
    for name in ("config.json", "tokenizer_config.json", "processor_config.json"):
        try:
            named = read_json(folder / name).get("auto_map", {}).values()
        except (OSError, LineError, AttributeError):
            continue
        for value in named:
            values = value if isinstance(value, list) else [value]
            files |= {f"{v.rpartition('.')[0]}.py": None for v in values if isinstance(v, str)}
    return list(files)[:3]


def only_pickles(folder: Path) -> list[str]:
    """Return the first three files of weights that are pickles, if there are no safetensors."""
    if any(folder.glob("*.safetensors")):
        return []
    weights = ("pytorch_model*.bin", "adapter_model*.bin", "model*.bin", "consolidated*.pth")
    return sorted(file.name for pattern in weights for file in folder.glob(pattern))[:3]


def files(run: Run) -> Iterator[Finding]:
    """Check files that flags name: a prompt, a DeepSpeed configuration."""
    for name, ending, other in FILES:
        value = run.text(name) or ""
        if value.endswith(ending):
            yield from no_such_path(run, name, "file", value, f"is no file. {other}")


MODEL = (plugins, model, hub_ids, images, liger, experts, files)
