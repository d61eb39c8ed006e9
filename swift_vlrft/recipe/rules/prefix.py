"""Check how the format rewards read what the chat template writes before each completion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from swift_vlrft.parsing.answers import well_formed
from swift_vlrft.recipe.facts import Template
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.rules.model import checkpoint_arguments, family
from swift_vlrft.recipe.run import Run
from swift_vlrft.rewards import REWARDS

THINKS, ANSWERS = "<think>t</think>", "<answer>a</answer>"


def response_prefix(run: Run) -> Iterator[Finding]:
    if not run.grpo:
        return
    at, writer, prefix = _prefix(run)
    if not prefix:
        return
    begins = f"{writer} begins each completion with {prefix!r}"
    named = [name for name in run.texts("reward_funcs") if name in REWARDS]
    formats = " and ".join(name for name in named if REWARDS[name].scores_format)
    if not formats:
        text = f"{begins}; the answer is read behind it"
    elif well_formed(prefix + THINKS + ANSWERS):
        text = f"{begins}, not counted by {formats}; the model must write its own think block"
    elif well_formed(prefix + THINKS.removeprefix("<think>") + ANSWERS):
        text = f"{begins}, counted by {formats} as if the model had written it"
    else:
        text = f"{begins}, so no completion earns {formats}. Give --response_prefix ''"
        yield problem(run, at, "response-prefix", text)
        return
    if at != "response_prefix":  # who gives it knows it
        yield note(run, at, "response-prefix", text)


def _prefix(run: Run) -> tuple[str, str, str]:
    """The flag it comes from, who writes it, and it (template/base.py: _get_response_prefix)."""
    if not run.omits("response_prefix"):
        return "response_prefix", "--response_prefix", run.text("response_prefix") or ""
    at = "model" if run.omits("template") else "template"
    name, template = _template(run)
    if template is None:
        return at, "", ""
    text = template.usual
    if not run.omits("enable_thinking"):
        text = template.thinking if run.true("enable_thinking") else template.otherwise
    return at, f"the template {name}", text


def _template(run: Run) -> tuple[str, Template | None]:
    """By --template, else the checkpoint's args.json, its name, or its family."""
    known, model = run.facts.templates, run.text("model") or ""
    name = run.text("template") or checkpoint_arguments(run).get("template")
    if name is None:
        called = PurePosixPath(model).name.lower()
        name = next((name for name, template in known.items() if called in template.models), None)
    if name is None and (its := family(run)) is not None and len(its.templates) == 1:
        name = next(iter(its.templates))
    return name or "", known.get(name or "")


PREFIX = (response_prefix,)
