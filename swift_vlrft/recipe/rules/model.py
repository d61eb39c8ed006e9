"""The model, the size of its images, and the files that flags name: do they exist?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from swift_vlrft.families import family_of
from swift_vlrft.families.family import Family
from swift_vlrft.recipe.rules.finding import Finding, found
from swift_vlrft.recipe.run import Run

SHADOWS = (
    *("datasets", "swift", "json", "rewards", "torch", "transformers", "vllm", "eval", "typing"),
)
FILES = (
    ("system", ".txt", "Give the text itself, or a file"),
    ("deepspeed", ".json", "Give zero2, zero3, zero3_offload, or a file"),
)


def is_missing(run: Run, name: str) -> bool:
    """Whether a name is that of a path that does not exist."""
    path = run.recipe.at(name)
    return name.startswith(("/", "./", "../", "~")) and path is not None and not path.exists()


def family(run: Run) -> Family | None:
    """The model's family: from --model_type, its folder, or its name."""
    name = run.text("model") or ""
    folder = run.recipe.at(name) if name else None
    if folder is not None and folder.is_dir():
        name = str(folder)
    return family_of(model_type=run.text("model_type"), name=name)


def model(run: Run) -> Iterator[Finding]:
    if not run.trains:
        return
    if run.lacks("model", "resume_from_checkpoint"):
        yield found(run, "model", "model")
    name = run.text("model")
    if name == "":
        yield found(run, "model", "model/empty")
    if name and is_missing(run, name):
        yield found(run, "model", "model/folder")
    if re.search(r"glm-?4v-9b", name or "", re.I) and run.grpo:
        yield found(run, "model", "model/glm-4v")


def max_pixels(run: Run) -> Iterator[Finding]:
    known = family(run) if run.trains else None
    if known is None or known.images is None or not run.lacks("max_pixels"):
        return
    if not known.images.from_environment:
        yield found(run, "model", "max-pixels/flag")
        return
    seen = any(run.variable(name) for name in ("MAX_PIXELS", "IMAGE_MAX_TOKEN_NUM"))
    if not seen and run.lacks("model_kwargs"):
        yield found(run, "model", "max-pixels")


def plugins(run: Run) -> Iterator[Finding]:
    for flag in ("external_plugins", "custom_register_path"):
        for value in run.texts(flag):
            path = run.recipe.at(value)
            if path is None:
                continue
            if path.is_dir():
                bare = value.rstrip("/")
                yield found(run, flag, "plugin/folder", flag=flag, value=value, bare=bare)
            elif not path.is_file():
                ours = ' Ours is "$(vlrft plugin)".' if path.name == "vlrft.py" else ""
                values = {"value": value, "folder": run.recipe.folder, "ours": ours}
                yield found(run, flag, "plugin/file", flag=flag, **values)
            elif path.stem in SHADOWS:
                yield found(run, flag, "plugin/shadows", flag=flag, value=value, stem=path.stem)


def files(run: Run) -> Iterator[Finding]:
    """Files that flags name: a prompt, a DeepSpeed configuration."""
    for flag, ending, other in FILES:
        value = run.text(flag) or ""
        path = run.recipe.at(value)
        if value.endswith(ending) and path is not None and not path.is_file():
            values = {"value": value, "folder": run.recipe.folder, "other": other}
            yield found(run, flag, "file", flag=flag, **values)


MODEL = (plugins, model, max_pixels, files)
