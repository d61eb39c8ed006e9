"""A page with `vlrft plan`, `check` and `score`, for a Hugging Face Space or a ModelScope Studio.

    pip install gradio swift-vlrft && python app.py

Each question is a process of its own with a time limit, in an empty folder that is removed after
it. A pasted recipe is read and never run, but it may name files of this machine: serve the page
from a container that holds nothing else.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

SECONDS = 20
LONGEST_TEXT = 100_000
LONGEST_ANSWER = 50_000


def plan(recipe: str, gpus: str) -> str:
    """The plan of a recipe's memory as JSON, or one line that says what is wrong."""
    if not gpus.strip():
        return "Give the GPUs of a node, such as 4x80."
    return ask(["plan", "recipe.sh", f"--gpus={gpus.strip()}"], "recipe.sh", recipe)


def check(recipe: str) -> str:
    """The findings in a recipe as JSON, or one line that says what is wrong."""
    return ask(["check", "recipe.sh"], "recipe.sh", recipe)


def score(reward: str, completion: str, solution: str) -> str:
    """The score of a completion as JSON, or one line that says what is wrong."""
    row = json.dumps({"completion": completion, "solution": solution})
    return ask(["score", "row.jsonl", "--show=1", f"--reward={reward.strip()}"], "row.jsonl", row)


def ask(arguments: list[str], name: str, text: str) -> str:
    """What `vlrft ARGUMENTS --json` prints beside a file ``name`` that holds ``text``."""
    if any("\0" in one for one in (text, *arguments)):
        return "The text holds a NUL character; remove it."
    if len(text) > LONGEST_TEXT:
        return f"The text has {len(text):,} characters; at most {LONGEST_TEXT:,} are read."
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text, "utf-8", "replace")
        command = ["vlrft", *arguments, "--json"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"No answer within {SECONDS} seconds; try a shorter text."
    return (done.stdout.strip() or done.stderr.strip())[:LONGEST_ANSWER]


def page():
    """The page, whose three tabs show answers as plain text."""
    import gradio

    def tab(title, question, inputs):
        with gradio.Tab(title):
            gradio.Interface(
                question,
                inputs,
                gradio.Textbox(label="vlrft's answer", lines=20),
                api_name=False,
                flagging_mode="never",
            )

    recipe = {"label": "Recipe: a shell script", "lines": 12}
    with gradio.Blocks(title="swift-vlrft") as blocks:
        gradio.Markdown("# swift-vlrft\nWill it fit, is it right, and why did an answer lose?")
        tab("Plan", plan, [gradio.Textbox(**recipe), gradio.Textbox("4x80", label="GPUs")])
        tab("Check", check, [gradio.Textbox(**recipe)])
        labels = ("Reward", "Completion", "Solution")
        tab("Score", score, [gradio.Textbox(label=label) for label in labels])
    return blocks


if __name__ == "__main__":
    page().launch(server_name="0.0.0.0", server_port=7860)
