"""``vlrft studio``: the page for a ModelScope Studio or a Hugging Face Space, on this machine."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer


def studio(
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0: every machine may open the page.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 7860,
) -> None:
    """Serve a page: memory plan, recipe check, why an answer got its score. Needs no GPU.

    Example: vlrft studio --port 7860

    Nothing that is pasted is run, stored or looked up. examples/studio/ is the same page for a
    ModelScope Studio or a Hugging Face Space.
    """
    if find_spec("gradio") is None:
        raise ValueError('the page needs gradio: pip install "swift-vlrft[studio]"')
    from swift_vlrft.studio.page import serve

    serve(host, port)
