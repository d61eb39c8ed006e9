"""GLM-4v in vLLM, with the positions that it was trained with.

vLLM's own GLM-4v gives every patch of an image a position; its makers give all patches of an image
one. What a rollout then says has other probabilities than the same tokens have in training. vLLM
lets a model choose its positions (M-RoPE, rows of positions per token): this subclass does, with
equal rows, and reads one of them. Layers, weights and image processing stay vLLM's.

Importing this imports vLLM; `vllm_plugin` names it to vLLM without.
"""

import torch
from vllm.config import VllmConfig
from vllm.model_executor.models.glm4v import GLM4VForCausalLM, GLMVImagePixelInputs
from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.sequence import IntermediateTensors

from swift_vlrft.chatglm4v.vllm_plugin import HF_OVERRIDES


class ChatGLM4VForConditionalGeneration(GLM4VForCausalLM):
    """vLLM's GLM-4v; all patches of an image share one position."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        if not vllm_config.model_config.uses_mrope:  # vLLM would count a position per patch
            raise ValueError(
                f"GLM-4v in vLLM: the engine needs hf_overrides={HF_OVERRIDES}, for the positions "
                f"that the model was trained with; it was started without mrope_section"
            )
        super().__init__(vllm_config=vllm_config, prefix=prefix)

    def _process_image_input(self, image_input: GLMVImagePixelInputs) -> torch.Tensor:
        """In the weights' type; vLLM's rounds the image to the type that config.json names."""
        return self.transformer.vision(image_input["data"])

    def get_mrope_input_positions(
        self, input_tokens: list[int], mm_features: list[MultiModalFeatureSpec]
    ) -> tuple[torch.Tensor, int]:
        """Rows of positions [3, tokens], all equal, and the next token's position minus its index.

        An image's tokens are its begin, its patches and its end: three positions.
        """
        steps = torch.ones(len(input_tokens), dtype=torch.long)
        steps[0] = 0
        for image in (feature.mm_position for feature in mm_features):
            steps[image.offset + 2 : image.offset + image.length - 1] = 0
        positions = steps.cumsum(0)
        return positions.expand(3, -1), int(positions[-1]) + 1 - len(input_tokens)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: object,
    ) -> torch.Tensor | IntermediateTensors:
        """As vLLM's; ``positions`` [3, tokens] are equal rows."""
        return super().forward(
            input_ids, positions[0], intermediate_tensors, inputs_embeds, **kwargs
        )
