"""Run GLM-4v in vLLM with the positions that it was trained with.

vLLM's own GLM-4v gives every patch of an image a position; its makers give all patches of an image
one. What a rollout then says has other probabilities than the same tokens have in training. vLLM
lets a model choose its positions (M-RoPE, rows of positions per token): this subclass does, with
equal rows, and reads one of them. Layers and weights stay vLLM's.

Importing this imports vLLM; `vllm_plugin` names it to vLLM without.
"""

import json

import torch
from vllm.config import VllmConfig
from vllm.model_executor.models.glm4v import (
    GLM4VDummyInputsBuilder,
    GLM4VForCausalLM,
    GLM4VMultiModalProcessor,
    GLM4VProcessingInfo,
    GLMVImagePixelInputs,
)
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.sequence import IntermediateTensors

from swift_vlrft.chatglm4v.image_processor import ChatGLM4VImageProcessor
from swift_vlrft.chatglm4v.vllm_plugin import HF_OVERRIDES


class ProcessingInfo(GLM4VProcessingInfo):
    def get_image_processor(self, **kwargs: object) -> ChatGLM4VImageProcessor:
        """Return the trainer's, from whose resize vLLM's differs in a hundredth of the pixels."""
        return ChatGLM4VImageProcessor.of(self.get_hf_config())


@MULTIMODAL_REGISTRY.register_processor(
    GLM4VMultiModalProcessor, info=ProcessingInfo, dummy_inputs=GLM4VDummyInputsBuilder
)
class ChatGLM4VForConditionalGeneration(GLM4VForCausalLM):
    """vLLM's GLM-4v; all patches of an image share one position."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        if not vllm_config.model_config.uses_mrope:  # vLLM would count a position per patch
            raise ValueError(
                "vLLM was started without the positions that GLM-4v was trained with: give it "
                f"--hf-overrides '{json.dumps(HF_OVERRIDES)}'"
            )
        super().__init__(vllm_config=vllm_config, prefix=prefix)

    def _process_image_input(self, image_input: GLMVImagePixelInputs) -> torch.Tensor:
        """Use the weights' type; vLLM rounds the image to the type that config.json names."""
        return self.transformer.vision(image_input["data"])

    def get_mrope_input_positions(
        self, input_tokens: list[int], mm_features: list[MultiModalFeatureSpec]
    ) -> tuple[torch.Tensor, int]:
        """Return equal rows of positions [3, tokens], and the next position minus its index.

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
        """Run vLLM's forward; ``positions`` [3, tokens] are equal rows."""
        return super().forward(
            input_ids, positions[0], intermediate_tensors, inputs_embeds, **kwargs
        )
