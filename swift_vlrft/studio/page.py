"""The page, in Gradio: three tabs, each a form and an answer.

Nothing is stored: no flagging, no examples that are computed, no uploads (an image travels with its
question), no state between two questions, no analytics.
"""

from __future__ import annotations

import html
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.geometry.box_format import BOX_FORMATS
from swift_vlrft.recipe.facts import facts
from swift_vlrft.rewards import REWARDS, TASK_NAMES
from swift_vlrft.studio import limits
from swift_vlrft.studio.guard import Guard
from swift_vlrft.studio.workers import Workers

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

QUICK = {"seconds": 10, "gib": 1.5}
EXACT = {"seconds": 120, "gib": 12.0}
"""Limits of one question; a trace imports torch, which reserves much more than it uses."""
AT_ONCE = 2
WAITING = 20
"""Questions that are answered at once, and that may wait; more are told to come back."""

HEAD = """# swift-vlrft studio
Plan the memory of a GRPO run, check its recipe, and see why an answer got its score: what
`vlrft plan`, `vlrft check` and `vlrft score` say, without a GPU. Nothing that you paste is run or
stored, and no path or name in it is looked up."""
WITH_IMAGE = """async (...values) => {
  const input = document.querySelector(".vlrft-file input");
  const file = input && input.files[0];
  let sent = "";
  if (file && file.size > MOST) sent = "too large:" + file.size;
  else if (file) sent = await new Promise((done) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => done("unreadable");
    reader.readAsDataURL(file);
  });
  values[values.length - 1] = sent;
  return values;
}""".replace("MOST", str(limits.IMAGE))
FILE = """<div class="vlrft-file"><label>Image (optional; stays in your browser until you press the
button)<input type="file" accept="image/*"></label></div>"""

SOLUTION = "[{'Position': [110, 160, 480, 700], 'Confidence': 1}]"
COMPLETION = (
    "<think>One cat, on the left.</think>\n"
    "<answer>[{'Position': [90, 150, 470, 690], 'Confidence': 0.8}]</answer>"
)


def asker(workers: Workers) -> Callable[..., str]:
    """A function that answers in HTML, an error included: it never raises."""

    def ask(kind: str, limit: dict[str, Any], **values: Any) -> str:
        try:
            body = workers.ask(kind, values, **limit)
        except (ValueError, OSError) as error:
            body = f'<p class="verdict error">{html.escape(str(error))}</p>'
        return f'<div class="vlrft">{body}</div>'

    return ask


def rewards_of(task: str) -> tuple[list[str], list[str]]:
    """The rewards that score rows of a task, and those that are chosen at first."""
    known = [name for name, one in REWARDS.items() if one.task is None or one.task.name == task]
    scoring = [name for name in known if REWARDS[name].task and REWARDS[name].recommended]
    return known, scoring[:1] + [name for name in known if REWARDS[name].task is None][:1]


def build(workers: Workers) -> Any:
    """The page as gradio.Blocks."""
    import gradio as gr

    ask = asker(workers)
    shipped = shipped_file("recipes", "qwen2_5_vl_3b/detection_4x80g.sh").read_text()
    example = re.sub(r"(?m)^#(?!!).*\n", "", shipped)

    def plan(script: str, gpus: str, tokens: str) -> str:
        return ask("plan", QUICK, script=script, gpus=gpus, tokens=tokens)

    def exact_plan(script: str, gpus: str, tokens: str) -> str:
        return ask("plan", EXACT, script=script, gpus=gpus, tokens=tokens, exact=True)

    def check(script: str) -> str:
        return ask("check", QUICK, script=script)

    def why(rewards: list[str], *texts: str) -> str:
        names = ("frame", "completion", "solution", "seen", "columns", "image")
        return ask("why", QUICK, rewards=rewards or [], **dict(zip(names, texts, strict=True)))

    def of_task(task: str) -> Any:
        known, usual = rewards_of(task)
        return gr.update(choices=known, value=usual)

    with gr.Blocks(title="swift-vlrft studio", analytics_enabled=False) as page:
        gr.Markdown(HEAD)
        answers: dict[str, Any] = {"api_visibility": "private", "concurrency_limit": AT_ONCE}
        with gr.Tab("Memory plan"):
            script = _script(gr, example)
            with gr.Row():
                gpus = gr.Textbox("4xA100-80", label="GPUs of a node (4x24, 4xA100-80, 8xH20)")
                tokens = gr.Textbox("", label="Tokens of a usual answer (optional)")
            with gr.Row():
                quick = gr.Button("Plan", variant="primary")
                exact = gr.Button("Plan exactly (traced; up to two minutes)")
            shown = gr.HTML()
            given = [script, gpus, tokens]
            quick.click(plan, given, shown, concurrency_id="quick", **answers)
            exact.click(
                exact_plan,
                given,
                shown,
                concurrency_id="exact",
                api_visibility="private",
                concurrency_limit=1,
            )
        with gr.Tab("Recipe check"):
            script = _script(gr, example)
            button = gr.Button("Check", variant="primary")
            shown = gr.HTML()
            button.click(check, script, shown, concurrency_id="quick", **answers)
        with gr.Tab("Why this score"):
            with gr.Row():
                task = gr.Dropdown(list(TASK_NAMES), value="detection", label="Task")
                frame = gr.Dropdown(list(BOX_FORMATS), value="norm1000", label="Box format")
            known, usual = rewards_of("detection")
            rewards = gr.CheckboxGroup(known, value=usual, label="Rewards")
            task.change(of_task, task, rewards, api_visibility="private")
            completion = gr.Textbox(COMPLETION, label="Completion", lines=4, max_lines=12)
            solution = gr.Textbox(SOLUTION, label="Solution (gold)", lines=2, max_lines=8)
            gr.HTML(FILE)
            with gr.Accordion("More", open=False):
                seen = gr.Textbox(
                    "", label="Pixels refer to an image of (644x476; default: the image's size)"
                )
                columns = gr.Textbox(
                    "", label='Further columns of the row, as JSON: {"tolerance": 0.01}'
                )
            image = gr.Textbox("", visible=False)
            button = gr.Button("Why", variant="primary")
            shown = gr.HTML()
            given = [rewards, frame, completion, solution, seen, columns, image]
            button.click(why, given, shown, js=WITH_IMAGE, concurrency_id="quick", **answers)
    page.queue(max_size=WAITING, api_open=False)
    for block in page.blocks.values():
        # Gradio fetches an address that a request puts in place of any component's value.
        setattr(block, "async_move_resource_to_block_cache", _refuse_file)  # noqa: B010
    return page


async def _refuse_file(path: Any) -> str:
    raise ValueError("this page takes no files")


def _script(gr: Any, example: str) -> Any:
    return gr.Code(
        example, language="shell", label="Recipe: a script, YAML or JSON", lines=10, max_lines=18
    )


def serve(host: str = "127.0.0.1", port: int = 7860) -> None:
    """Serve the page until it is interrupted; OSError if host or port cannot be had."""
    from starlette.middleware import Middleware

    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise OSError(f"--host {host} --port {port}: {error.strerror or error}") from None
    print(f"http://{host}:{port} (Ctrl-C ends it)", flush=True)
    facts()  # once, as it may take seconds where ms-swift is of another version
    workers = Workers(AT_ONCE)
    try:
        build(workers).launch(
            server_name=host,
            server_port=port,
            share=False,
            quiet=True,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            enable_monitoring=False,
            footer_links=[],
            allowed_paths=[],
            app_kwargs={"middleware": [Middleware(Guard)], "openapi_url": None},
            css=Path(__file__).with_name("page.css").read_text(),
        )
    finally:
        workers.close()
