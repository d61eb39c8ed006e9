"""vLLM's waits for an engine whose process was killed: they end with its own EngineDeadError.

vLLM's synchronous client (v1/engine/core_client.py: SyncMPClient) sees that its engine has ended,
and tells those who ask from then on; who waits for an answer, as `swift rollout` amid a rollout,
waits forever.
"""

from __future__ import annotations

from functools import wraps
from typing import Any


def end_waits_for_a_killed_engine(clients: Any) -> None:
    """``clients`` is vLLM's module of them; once, however often it is called."""
    shutdown = clients.SyncMPClient.shutdown
    if hasattr(shutdown, "__wrapped__"):
        return

    @wraps(shutdown)
    def shut_down_and_tell(self: Any, *given: Any, **named: Any) -> None:
        shutdown(self, *given, **named)
        error = clients.EngineDeadError()
        self.outputs_queue.put_nowait(error)
        for answer in list(self.utility_results.values()):
            answer.set_exception(error)

    clients.SyncMPClient.shutdown = shut_down_and_tell
