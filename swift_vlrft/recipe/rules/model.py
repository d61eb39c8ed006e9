"""The model, the size of its images, and the files that flags name: do they exist?"""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.families import family_of
from swift_vlrft.families.family import Family
from swift_vlrft.families.fixed import Budget
from swift_vlrft.recipe.rules.finding import Edit, Finding, note, problem
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
    """The model's family: from --model_type, its folder, or its name; a run that goes on from a
    checkpoint may name that alone.
    """
    name = run.text("model") or run.text("resume_from_checkpoint") or ""
    folder = run.recipe.at(name) if name else None
    if folder is not None and folder.is_dir():
        name = str(folder)
    return family_of(model_type=run.text("model_type"), name=name)


def model(run: Run) -> Iterator[Finding]:
    if not run.trains:
        return
    megatron = ("mcore_model", "mcore_adapter", "adapters") if run.megatron else ()
    if run.lacks("model", "resume_from_checkpoint", *megatron):
        yield problem(run, "model", "model", "--model is missing")
    name = run.text("model")
    if name == "":
        yield problem(run, "model", "model", "--model has no value")
    if name and is_missing(run, name):
        yield problem(run, "model", "model", f"--model {name}: no such folder")


def fixed_images(run: Run) -> Iterator[Finding]:
    """Images of sizes that no flag changes, in rows that are shorter."""
    known = family(run) if run.trains else None
    if known is None or known.images is None or known.images.adjustable:
        return
    rule = known.images
    low, high = rule.limits(model=run.text("model"))
    limits = {"min_pixels": low, "max_pixels": high}
    tokens, most = (
        rule.tokens(*size, **limits) + rule.marks(*size, **limits)
        for size in ((1, 1), rule.largest(low, high))
    )
    # Of a budget a thin image leaves most unused: no row is too long or too short for sure.
    longest = None if isinstance(rule, Budget) else run.optional("max_length")
    if longest and tokens < longest <= most:
        text = (
            f"--max_length {longest}: an image of {known.name} takes up to {most} tokens. Smaller: "
            "a lower max_patches in the checkpoint's preprocessor_config.json"
        )
        yield note(run, "max_length", "lengths", text)
    if longest and longest <= tokens:
        least = "at least " * (most > tokens)
        text = (
            f"--max_length {longest}: every image of {known.name} takes {least}{tokens} tokens, so "
            f"no row is that short. For {longest} tokens of text give {longest + tokens}"
        )
        yield problem(run, "max_length", "lengths", text)
    flags = [] if run.lacks("max_pixels") else ["--max_pixels"]
    for name in (*flags, *run.image_limits):
        text = f"{name} saves nothing: {known.name} sees every image {rule.seen}"
        yield note(run, name.lstrip("-"), "max-pixels", text)


def liger(run: Run) -> Iterator[Finding]:
    known = family(run) if run.trains else None
    if known and not known.memory.liger and run.true("use_liger_kernel"):
        text = (
            f"--use_liger_kernel: liger has no kernels for {known.name}; GRPO stops, or its loss "
            "is wrong"
        )
        drop = Edit("use_liger_kernel", run.line("use_liger_kernel"), drop=True)
        yield problem(run, "use_liger_kernel", "liger", text, drop)


def max_pixels(run: Run) -> Iterator[Finding]:
    known = family(run) if run.trains else None
    if known is None or known.images is None or not run.lacks("max_pixels"):
        return
    if not known.images.adjustable:
        return
    if not known.images.from_environment:
        text = (
            "ms-swift does not hand MAX_PIXELS to this family; cap its images with "
            "--max_pixels 401408"
        )
        yield note(run, "model", "max-pixels", text)
        return
    seen = any(run.variable(name) for name in ("MAX_PIXELS", "IMAGE_MAX_TOKEN_NUM"))
    if not seen and run.lacks("model_kwargs"):
        text = (
            "MAX_PIXELS is not set: one image may take 16,384 tokens. Set it, for example to "
            "401408 (512 tokens)"
        )
        yield note(run, "model", "max-pixels", text)


def plugins(run: Run) -> Iterator[Finding]:
    for name in ("external_plugins", "custom_register_path"):
        for value in run.texts(name):
            path = run.recipe.at(value)
            if path is None:
                continue
            if path.is_dir():
                text = (
                    f"is a folder; ms-swift takes files since 4.5.3: "
                    f"give {value.rstrip('/')}/__init__.py"
                )
                yield problem(run, name, "plugin", f"--{name} {value} {text}")
            elif not path.is_file():
                ours = ' Ours is "$(vlrft plugin)".' if path.name == "vlrft.py" else ""
                text = f"no such file (from {run.recipe.folder}). ms-swift's own examples are not "
                yield problem(run, name, "plugin", f"--{name} {value}: {text}in its wheel.{ours}")
            elif path.stem in SHADOWS:
                text = (
                    "its folder goes first on Python's path, so it hides the package "
                    f"{path.stem}. Rename it"
                )
                yield problem(run, name, "plugin", f"--{name} {value}: {text}")


def files(run: Run) -> Iterator[Finding]:
    """Files that flags name: a prompt, a DeepSpeed configuration."""
    for name, ending, other in FILES:
        value = run.text(name) or ""
        path = run.recipe.at(value)
        if value.endswith(ending) and path is not None and not path.is_file():
            text = f"--{name} {value}: no such file (from {run.recipe.folder}). {other}"
            yield problem(run, name, "file", text)


MODEL = (plugins, model, max_pixels, fixed_images, liger, files)
