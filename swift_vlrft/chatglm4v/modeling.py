"""Build GLM-4v-9b for transformers: images put in place, positions, loss, generation.

    input_ids     [gMASK] <sop> <|user|> boi pad pad ... pad eoi What ? <|assistant|> ...
    position_ids     0      1      2      3   4   4  ...  4   5   6   7       8

An image stands in ``input_ids`` as boi, its placeholders (1,600 of the pad token) and eoi. All its
placeholders have one position, so that neither the length nor the pad token tells where a row is:
the caller's ``attention_mask`` does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed, nn
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation import GenerationMixin
from transformers.integrations import is_deepspeed_zero3_enabled, is_fsdp_enabled
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from swift_vlrft.chatglm4v.configuration import ChatGLM4VConfig
from swift_vlrft.chatglm4v.text import ChatGLM4VTextLayer, TextAttention, TextEncoder, rotary
from swift_vlrft.chatglm4v.vision import ChatGLM4VVisionModel


def image_starts(input_ids: torch.Tensor, config: ChatGLM4VConfig) -> torch.Tensor:
    """Mark the boi of every image: boi, exactly its placeholders, eoi. [rows, tokens]"""
    to_eoi = config.image_tokens + 1
    starts = torch.zeros_like(input_ids, dtype=torch.bool)
    if input_ids.shape[1] > to_eoi:
        pads = (input_ids == config.pad_token_id).cumsum(1)
        starts[:, :-to_eoi] = (
            (input_ids[:, :-to_eoi] == config.boi_token_id)
            & (input_ids[:, to_eoi:] == config.eoi_token_id)
            & (pads[:, to_eoi:] - pads[:, :-to_eoi] == config.image_tokens)
        )
    return starts


def _behind(starts: torch.Tensor, first: int, stop: int) -> torch.Tensor:
    """Mark the tokens ``first`` to ``stop`` (excluded) after each start. [rows, tokens]"""
    tokens = starts.shape[1]
    opened, closed = (
        nn.functional.pad(starts.long(), (by, 0))[:, :tokens].cumsum(1) for by in (first, stop)
    )
    return opened > closed


def position_ids_of(
    input_ids: torch.Tensor, attention_mask: torch.Tensor | None, config: ChatGLM4VConfig
) -> torch.Tensor:
    """Return the positions of the training: all placeholders of an image share a position.

    ``input_ids`` and ``attention_mask`` are [rows, tokens]; padding does not count.
    """
    steps = (~_behind(image_starts(input_ids, config), 2, config.image_tokens + 1)).long()
    if attention_mask is not None:
        steps = steps * attention_mask.long()
    return (steps.cumsum(1) - 1).clamp(min=0)


class ChatGLM4VPreTrainedModel(PreTrainedModel):
    config_class = ChatGLM4VConfig
    base_model_prefix = "transformer"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    _no_split_modules = ["ChatGLM4VTextLayer", "ChatGLM4VVisionLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": ChatGLM4VTextLayer, "attentions": TextAttention}
    # Published with the weights, computed here.
    _keys_to_ignore_on_load_unexpected = [r"rotary_pos_emb\.inv_freq$"]


class ChatGLM4VModel(ChatGLM4VPreTrainedModel):
    """Turn words and images into hidden states; by its name the output layer belongs here."""

    def __init__(self, config: ChatGLM4VConfig) -> None:
        super().__init__(config)
        config.check()
        words = nn.Embedding(config.padded_vocab_size, config.hidden_size)
        self.embedding = nn.ModuleDict({"word_embeddings": words})
        self.encoder = TextEncoder(config)
        self.output_layer = nn.Linear(config.hidden_size, config.padded_vocab_size, bias=False)
        self.vision = ChatGLM4VVisionModel(config)
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding["word_embeddings"]

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embedding["word_embeddings"] = value

    def _tower_runs_everywhere(self) -> bool:
        """Say whether the vision tower has to run even for a batch without images.

        Sharded weights are gathered by all processes together, and DDP waits for a gradient of
        every trained parameter: a process that skips the tower would stop all others.
        """
        if not (distributed.is_initialized() and distributed.get_world_size() > 1):
            return False
        trained = self.training and any(p.requires_grad for p in self.vision.parameters())
        return trained or is_deepspeed_zero3_enabled() or is_fsdp_enabled()

    def _with_images(
        self,
        embeddings: torch.Tensor,
        input_ids: torch.Tensor,
        pixel_values: torch.Tensor | None,
        seen: int,
    ) -> torch.Tensor:
        config, vision = self.config, self.config.vision_config
        starts = image_starts(input_ids, config)
        possible = pixel_values is not None or input_ids.shape[1] > config.image_tokens
        places = int(starts.sum()) if possible else 0  # a device waits for this number
        images = 0 if pixel_values is None else len(pixel_values)
        if images != places:
            raise ValueError(
                f"pixel_values holds {images} images, input_ids places for {places} (each "
                f"{config.boi_token_id}, {config.image_tokens} times {config.pad_token_id}, "
                f"{config.eoi_token_id})"
            )
        if images:
            features = self.vision(pixel_values).to(embeddings)
            inside = _behind(starts, 0, config.image_tokens + 2)
            return embeddings.masked_scatter(inside[..., None], features)
        if seen or not self._tower_runs_everywhere():
            return embeddings
        sides = (vision["in_channels"], vision["image_size"], vision["image_size"])
        nothing = self.vision(embeddings.new_zeros(1, *sides)).sum().to(embeddings)
        return embeddings + 0 * nothing

    @merge_with_config_defaults  # type: ignore[untyped-decorator]
    @capture_outputs  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        pixel_values: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Return the hidden states of a batch.

        ``input_ids`` [rows, tokens] hold placeholders of images, ``pixel_values`` [images, 3, side,
        side] come in the order of the rows. ``position_ids`` [rows, tokens] may be left out unless
        there is a filled cache.
        """
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        if position_ids is None and seen:
            raise ValueError(
                "a filled cache needs position_ids: the placeholders of an image share one "
                "position, so the length does not tell the next"
            )
        words = self.get_input_embeddings()(input_ids)
        embeddings = self._with_images(words, input_ids, pixel_values, seen)
        if position_ids is None:
            flat = attention_mask is not None and attention_mask.ndim == 2
            padding = attention_mask if flat else None
            position_ids = position_ids_of(input_ids, padding, self.config)
        # Neither the mask nor the attention gets the positions: repeated ones would be read as
        # several packed sequences.
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=embeddings,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
        )
        states = self.encoder(
            embeddings,
            attention_mask=mask,
            turns=rotary(position_ids, self.config, embeddings.dtype),
            past_key_values=past_key_values,
            use_cache=use_cache,
            **kwargs,
        )
        return BaseModelOutputWithPast(last_hidden_state=states, past_key_values=past_key_values)


class ChatGLM4VForConditionalGeneration(ChatGLM4VPreTrainedModel, GenerationMixin):
    """``from_pretrained`` reads the published safetensors as they are, and writes such ones."""

    def __init__(self, config: ChatGLM4VConfig) -> None:
        super().__init__(config)
        self.transformer = ChatGLM4VModel(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.transformer.output_layer

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.transformer.output_layer = new_embeddings

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        pixel_values: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Return the logits of a batch, and the loss where ``labels`` are given.

        ``logits_to_keep`` counts the last logits (0: all), or is an index or mask [tokens];
        ``labels`` [rows, tokens kept], -100 where nothing is learned.
        """
        outputs = self.transformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            pixel_values=pixel_values,
            use_cache=use_cache,
            **kwargs,
        )
        places = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.transformer.output_layer(outputs.last_hidden_state[:, places])
        loss = None
        if labels is not None:
            size = self.config.padded_vocab_size
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=size, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def _prepare_position_ids_for_generation(
        self, inputs_tensor: torch.Tensor, model_kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Return the prompt's positions; transformers adds last + 1 for every generated token."""
        input_ids = model_kwargs.get("input_ids", inputs_tensor)
        return position_ids_of(input_ids, model_kwargs.get("attention_mask"), self.config)

    def _prepare_attention_mask_for_generation(
        self, inputs_tensor: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        """Return a mask of ones: the pad token is the placeholder of images, and counts."""
        return torch.ones(inputs_tensor.shape[:2], dtype=torch.long, device=inputs_tensor.device)
