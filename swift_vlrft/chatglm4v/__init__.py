"""Run GLM-4v-9b and CogAgent-9b under transformers 5: published weights without remote code.

    model = ChatGLM4VForConditionalGeneration.from_pretrained("glm-4v-9b")

``register`` makes transformers' Auto classes know it.
"""


def register() -> None:
    """Let transformers' Auto classes open folders of model type "chatglm" with this model."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    from swift_vlrft.chatglm4v.configuration import ChatGLM4VConfig
    from swift_vlrft.chatglm4v.modeling import ChatGLM4VForConditionalGeneration

    AutoConfig.register(ChatGLM4VConfig.model_type, ChatGLM4VConfig, exist_ok=True)
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
        auto.register(ChatGLM4VConfig, ChatGLM4VForConditionalGeneration, exist_ok=True)
