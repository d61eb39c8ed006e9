"""What tells vLLM of GLM-4v with the positions that it was trained with; imports nothing heavy.

`register` is an entry point of vLLM's group `vllm.general_plugins`: vLLM calls it in each of its
processes. The architecture has a name of its own, so vLLM's own GLM-4v stays as it is, and an
engine without the entry point refuses to start where it would count other positions.

It also ends waits for an engine that was killed, of any model.
"""

import sys
from functools import wraps
from typing import Any

ARCHITECTURE = "ChatGLM4VForConditionalGeneration"
# vLLM asks a model for its positions where its configuration has an M-RoPE section. Only the number
# of sections is read, by the engine; the rotary embedding is GLM-4v's own.
HF_OVERRIDES = {"architectures": [ARCHITECTURE], "mrope_section": [1, 1, 1]}


def register() -> None:
    """Name the model to vLLM, which imports it when a checkpoint asks for it."""
    from vllm import ModelRegistry

    ModelRegistry.register_model(ARCHITECTURE, f"swift_vlrft.chatglm4v.vllm:{ARCHITECTURE}")
    # Imported already where there is an engine to wait for.
    if clients := sys.modules.get("vllm.v1.engine.core_client"):
        end_waits_for_a_killed_engine(clients)


def end_waits_for_a_killed_engine(clients: Any) -> None:
    """vLLM's synchronous client sees that its engine's process has ended, and tells those who ask
    from then on; who is waiting for an answer, as `swift rollout` amid a rollout, waits forever.
    """
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
