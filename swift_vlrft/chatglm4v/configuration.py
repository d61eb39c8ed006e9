"""Read the published config.json, key by key."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

VISION: dict[str, Any] = {
    "image_size": 1120,
    "patch_size": 14,
    "in_channels": 3,
    "num_positions": 6401,
    "num_hidden_layers": 63,
    "hidden_size": 1792,
    "num_heads": 16,
    "intermediate_size": 15360,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "dropout_prob": 0.0,
    "scaling_factor": 8,
}
"""The vision tower of glm-4v-9b."""

BUILT: dict[str, Any] = {
    "rmsnorm": True,
    "post_layer_norm": True,
    "multi_query_attention": True,
    "add_qkv_bias": True,
    "add_bias_linear": False,
    "apply_residual_connection_post_layernorm": False,
    "fp32_residual_connection": False,
    "interleaved_qkv": False,
    "hidden_dropout": 0.0,
    "pre_seq_len": None,
    "quantization_bit": 0,
}
"""The published models have this architecture, and no other is built here. It is written into
each config.json, since vLLM's defaults are another model's.
"""


class ChatGLM4VConfig(PreTrainedConfig):
    """The defaults describe glm-4v-9b; cogagent-9b differs in ``original_rope``."""

    model_type = "chatglm"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {
        "num_hidden_layers": "num_layers",
        "vocab_size": "padded_vocab_size",
        "intermediate_size": "ffn_hidden_size",
        "num_key_value_heads": "multi_query_group_num",
        "head_dim": "kv_channels",
        "max_position_embeddings": "seq_length",
        "rms_norm_eps": "layernorm_epsilon",
    }

    padded_vocab_size: int = 151552
    hidden_size: int = 4096
    ffn_hidden_size: int = 13696
    num_layers: int = 40
    num_attention_heads: int = 32
    multi_query_group_num: int = 2
    kv_channels: int = 128
    seq_length: int = 8192
    layernorm_epsilon: float = 1.5625e-07
    rope_ratio: float = 1
    original_rope: bool = True
    """Rotary positions turn neighbouring dimensions; False: those half the rotated width apart."""
    attention_dropout: float = 0.0
    initializer_range: float = 0.02
    use_cache: bool = True
    tie_word_embeddings: bool = False
    pad_token_id: int = 151329
    """<|endoftext|>, which is also the placeholder of an image's patches."""
    eos_token_id: int | list[int] | None = None
    boi_token_id: int = 151339
    eoi_token_id: int = 151340
    vision_config: dict[str, Any] | None = None
    """A plain dictionary, as vLLM reads it; keys that are missing are glm-4v-9b's."""

    def __post_init__(self, **kwargs: Any) -> None:
        if self.eos_token_id is None:
            self.eos_token_id = [151329, 151336, 151338]
        self.vision_config = VISION | (self.vision_config or {})
        super().__post_init__(**(BUILT | kwargs))

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Raise ValueError for GLM-4's language models, whose config.json has the same type: the
        vision tower that it does not name would be built and drawn at random.
        """
        if not config_dict.get("vision_config"):
            raise ValueError(
                "config.json of type chatglm has no vision_config: a language model, which cannot "
                "be loaded in one process with GLM-4V"
            )
        return super().from_dict(config_dict, **kwargs)

    @property
    def grid(self) -> int:
        """Return the number of patches along a side of the image."""
        vision = self.vision_config or VISION
        return int(vision["image_size"]) // int(vision["patch_size"])

    @property
    def image_tokens(self) -> int:
        """Count an image's placeholders between boi and eoi: each stands for four patches."""
        return (self.grid // 2) ** 2

    def check(self) -> None:
        """Raise ValueError with the keys that ask for another architecture than is published."""
        said = {key: getattr(self, key) for key in BUILT}
        wrong = [f"{k}={v}" for k, v in said.items() if (v or None) != (BUILT[k] or None)]
        vision = self.vision_config or VISION
        if vision["dropout_prob"]:
            wrong.append(f"vision_config.dropout_prob={vision['dropout_prob']}")
        if wrong:
            raise ValueError(
                f"{', '.join(wrong)}: only the architecture of glm-4v-9b and cogagent-9b is built "
                "here; config.json is another model's"
            )
        if vision["num_positions"] != self.grid**2 + 1:
            raise ValueError(
                f"vision_config: image_size {vision['image_size']} and patch_size "
                f"{vision['patch_size']} make {self.grid**2} patches and one class vector, "
                f"num_positions is {vision['num_positions']}"
            )
