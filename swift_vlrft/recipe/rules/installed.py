"""Find packages that a recipe needs and this machine lacks; none is imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from swift_vlrft.recipe.facts import installed_versions
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.rules.model import family
from swift_vlrft.recipe.run import Run


def installed(run: Run) -> Iterator[Finding]:
    """Where ms-swift is missing no recipe runs, and what else it needs is missing, too."""
    if not installed_versions():
        text = "ms-swift is not installed here: what the recipe needs besides is not checked"
        yield note(run, "model", "not-installed", text)
        return
    known = family(run)
    resizes = known is not None and known.images is not None and known.images.from_environment
    for flag, needed, module, install in (
        ("use_vllm", run.command == "rollout" or run.true("use_vllm"), "vllm", "vllm"),
        ("model", resizes, "qwen_vl_utils", "'qwen-vl-utils>=0.0.14'"),
    ):
        if needed and importlib.util.find_spec(module) is None:
            text = f"--{flag} needs {module}, which is not installed here: pip install {install}"
            yield problem(run, flag, "not-installed", text)
