"""Tell vLLM of GLM-4v with the positions that it was trained with; import nothing heavy.

`register` is an entry point of vLLM's group `vllm.general_plugins`: vLLM calls it in each of its
processes. The architecture has a name of its own, so vLLM's own GLM-4v stays as it is, and an
engine without the entry point refuses to start where it would count other positions.
"""

ARCHITECTURE = "ChatGLM4VForConditionalGeneration"
# vLLM asks a model for its positions where its configuration has an M-RoPE section. Only the number
# of sections is read, by the engine; the rotary embedding is GLM-4v's own.
HF_OVERRIDES = {"architectures": [ARCHITECTURE], "mrope_section": [1, 1, 1]}


def register() -> None:
    """Name the model to vLLM, which imports it when a checkpoint asks for it."""
    from vllm import ModelRegistry

    ModelRegistry.register_model(ARCHITECTURE, f"swift_vlrft.chatglm4v.vllm:{ARCHITECTURE}")
