"""What a browser may ask of the server: the page, its parts, and the queue of its questions.

Gradio has routes besides that store files, fetch addresses and serve the disk. The page needs none
of them: an image is sent with the question and is never written down. All but the routes of ROUTES
is answered with 404, a body of more than BODY bytes with 413.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from swift_vlrft.studio.limits import BODY

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

ROUTES = re.compile(
    r"/|/(?:config|theme\.css|favicon\.ico|robots\.txt|manifest\.json)"
    r"|/(?:assets|static|svelte)/[\w./@-]+"
    r"|/gradio_api/(?:info|config|startup-events|login_check|app_id|cancel|reset|theme\.css)/?"
    r"|/gradio_api/queue/(?:join|data|status)|/gradio_api/heartbeat/\w+"
)


class Guard:
    """ASGI middleware."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if not ROUTES.fullmatch(path) or ".." in path:
            await _refuse(send, 404, "not a part of this page")
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > BODY:
            await _refuse(send, 413, f"more than {BODY // 2**20} MiB")
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            return message if taken <= BODY else {"type": "http.disconnect"}

        await self.app(scope, counted, send)


async def _refuse(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
