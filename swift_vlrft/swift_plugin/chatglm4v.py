"""GLM-4V and CogAgent in ms-swift, as model type ``chatglm4v``.

Model and tokenizer are this package's instead of the published code, and the template writes every
placeholder of an image.

[gMASK]<sop><|user|>
<|begin_of_image|><|endoftext|> x 1600<|end_of_image|>What is this?<|assistant|>
A cat.<|endoftext|>
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swift.model import ModelLoader, register_model
from swift.model.model_arch import MultiModelKeys, register_model_arch
from swift.model.model_meta import Model, ModelGroup, ModelMeta, get_model_name
from swift.template import StdTemplateInputs, Template, register_template
from swift.template.templates.glm import ChatGLM4TemplateMeta
from swift.utils import get_logger

from swift_vlrft.chatglm4v import register as register_classes
from swift_vlrft.chatglm4v.checkpoint import check_checkpoint, read_config
from swift_vlrft.chatglm4v.configuration import ChatGLM4VConfig
from swift_vlrft.chatglm4v.image_processor import ChatGLM4VImageProcessor
from swift_vlrft.chatglm4v.modeling import ChatGLM4VForConditionalGeneration, position_ids_of
from swift_vlrft.chatglm4v.tokenizer import tokenizer_of
from swift_vlrft.chatglm4v.vllm_plugin import HF_OVERRIDES
from swift_vlrft.chatglm4v.vllm_plugin import register as register_in_vllm
from swift_vlrft.families.chatglm4v import SPECIAL_IDS

logger = get_logger()

TYPE = "chatglm4v"
BOI, PAD, EOI = "<|begin_of_image|>", "<|endoftext|>", "<|end_of_image|>"


def register(model: str | None = None, *, check: bool = True) -> None:
    """Put both models into ms-swift's registries.

    With ``check`` a ValueError says in one line what is wrong with the folder ``model``.
    """
    register_classes()  # else ms-swift's engine opens config.json with the code beside it
    groups = [
        ModelGroup([Model(f"ZhipuAI/{name}", f"zai-org/{name}")])
        for name in ("glm-4v-9b", "cogagent-9b-20241220")
    ]
    folder = Path(model) if model else None
    if folder and (folder / "config.json").is_file():
        if check and (note := check_checkpoint(folder)):
            logger.info(f"swift_vlrft: {note}")
        if not (folder / "args.json").is_file():
            # Its architecture is named like those of other models: this names the type.
            groups.append(ModelGroup([Model(model_path=get_model_name(str(model)))]))
    register_model_arch(
        MultiModelKeys(
            TYPE,
            language_model="transformer.encoder",
            aligner=["transformer.vision.linear_proj", "transformer.vision.conv"],
            vision_tower="transformer.vision",
        ),
        exist_ok=True,
    )
    register_template(
        ChatGLM4TemplateMeta(TYPE, template_cls=ChatGLM4VTemplate, suffix=[PAD]), exist_ok=True
    )
    meta = ModelMeta(
        TYPE,
        groups,
        ChatGLM4VLoader,
        template=TYPE,
        model_arch=TYPE,
        architectures=[ChatGLM4VForConditionalGeneration.__name__, "ChatGLMModel"],
        tags=["vision"],
    )
    register_model(meta, exist_ok=True)


class ChatGLM4VLoader(ModelLoader):
    """Loads configuration, tokenizer and model of this package; no code of the checkpoint runs."""

    default_trust_remote_code = False

    def get_config(self, model_dir: str) -> ChatGLM4VConfig:
        if self.load_model and not self.return_dummy_model:
            check_checkpoint(Path(model_dir))
        return read_config(Path(model_dir))

    def get_processor(self, model_dir: str, config: ChatGLM4VConfig) -> Any:
        return tokenizer_of(Path(model_dir))

    def get_model(self, model_dir: str, *args: Any) -> Any:
        self.auto_model_cls: Any = self.auto_model_cls or ChatGLM4VForConditionalGeneration
        return super().get_model(model_dir, *args)


class ChatGLM4VTemplate(Template):
    placeholder_tokens = [SPECIAL_IDS[token] for token in (BOI, PAD, EOI)]
    """Never cut off where a row is too long; printed as a count."""
    _longest = 0
    _stop_words: Sequence[str | list[int]] = ()

    def init_processor(self, processor: Any) -> None:
        super().init_processor(processor)
        if processor is not None:
            self.image_processor = ChatGLM4VImageProcessor.of(self.config)

    def _preprocess_inputs(self, inputs: StdTemplateInputs) -> None:
        super()._preprocess_inputs(inputs)
        if len(inputs.images) > 1:
            raise ValueError(
                f"the row has {len(inputs.images)} images. GLM-4V and CogAgent take one image per "
                "conversation. Leave the row out, or join its images in one picture"
            )
        tokens = self.config.image_tokens + 2
        if inputs.images and self.max_length is not None and self.max_length <= tokens:
            # Cut to its placeholders, the row would lose all of its text.
            raise ValueError(
                f"--max_length {self.max_length}: an image alone takes {tokens} tokens; for as "
                f"many tokens of text give --max_length {self.max_length + tokens}"
            )
        if not self.config.original_rope:
            for message in inputs.messages:
                if message["role"] == "user" and isinstance(message["content"], str):
                    message["content"] = as_task(message["content"])

    def replace_tag(self, media_type: str, index: int, inputs: StdTemplateInputs) -> list[Any]:
        if media_type != "image":
            raise ValueError(f"the row has a {media_type}; GLM-4V and CogAgent take images only")
        if self.mode == "vllm":  # which writes the placeholders itself
            return [BOI + PAD + EOI]
        boi, pad, eoi = self.placeholder_tokens
        return [[boi, *[pad] * self.config.image_tokens, eoi]]

    def _encode(self, inputs: StdTemplateInputs) -> dict[str, Any]:
        encoded: dict[str, Any] = super()._encode(inputs)
        if inputs.images:
            seen = self.image_processor(inputs.images, return_tensors="pt")["pixel_values"]
            encoded["pixel_values"] = seen.to(self.model_info.torch_dtype)
        return encoded

    def _data_collator(
        self, batch: list[dict[str, Any]], *, padding_to: int | None = None
    ) -> dict[str, Any]:
        """Add the positions of the model's training; ms-swift's own count the tokens."""
        collated: dict[str, Any] = super()._data_collator(batch, padding_to=padding_to)
        if "input_ids" in collated:
            mask = collated.get("attention_mask")
            collated["position_ids"] = position_ids_of(collated["input_ids"], mask, self.config)
        return collated

    def skip_stop_tokens(self, generate_ids: list[int], is_finished: bool = True) -> list[int]:
        """Drop the token that ends an answer: any of three, none of them part of its text."""
        if is_finished and generate_ids and generate_ids[-1] in self._stops:
            generate_ids = generate_ids[:-1]
        ids: list[int] = super().skip_stop_tokens(generate_ids, is_finished)
        return ids

    @property
    def _stops(self) -> list[int]:
        stops = self.config.eos_token_id
        return stops if isinstance(stops, list) else [stops]

    def prepare_engine_kwargs(self) -> dict[str, Any]:
        """Give vLLM this package's model and a folder with the tokenizer.

        vLLM's own model counts a position per placeholder, and its worker processes would open the
        checkpoint's tokenizer with its code.
        """
        if self.mode != "vllm":
            return {}
        register_in_vllm()  # VLLM_PLUGINS may leave the entry point out, or an old install lack it
        folder = tempfile.mkdtemp(prefix="vlrft-tokenizer-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        return {"hf_overrides": dict(HF_OVERRIDES), "tokenizer": folder}

    def prepare_generate_kwargs(self, generate_kwargs: dict[str, Any], **options: Any) -> Any:
        asked = generate_kwargs["generation_config"]
        self._longest = asked.max_new_tokens or 0
        self._stop_words = getattr(asked, "stop_words", None) or ()
        return super().prepare_generate_kwargs(generate_kwargs, **options)

    def decode_generate_ids(self, generate_ids: list[int], **options: Any) -> Any:
        text = super().decode_generate_ids(generate_ids, **options)
        # ms-swift's transformers engine takes the pad token out of what was generated, and with it
        # the token that ends an answer, which is the same here. The list that it hands over is what
        # GRPO trains on, so the token is put back; an answer without it ended at the limit, at
        # another token, or at a stop word (--stop_words).
        whole = options.get("is_finished", True) and self.mode == "transformers"
        if whole and len(generate_ids) < self._longest and not self._stopped(generate_ids):
            generate_ids.append(self.placeholder_tokens[1])
        return text

    def _stopped(self, generate_ids: list[int]) -> bool:
        if generate_ids[-1:] and generate_ids[-1] in self._stops:
            return True
        text = self.tokenizer.decode(generate_ids[-20:])  # as far as ms-swift looks back
        return any(
            word in text if isinstance(word, str) else generate_ids[-len(word) :] == word
            for word in self._stop_words
        )


def as_task(text: str) -> str:
    """Write a problem in the words that CogAgent was trained on, its image in front.

    A text in these words stays as it is. What a problem says about its answer precedes the makers'
    sentence.
    """
    image = "<image>" if "<image>" in text else ""
    task = text.replace("<image>", "").strip()
    if task.startswith("Task:") and "History steps:" in task:
        return image + task
    task = task.removeprefix("Task:").strip()
    answer = "" if "<answer>" in task else "\n(Answer in Action-Operation format.)"
    return f"{image}Task: {task}\nHistory steps: \n(Platform: WIN){answer}"
