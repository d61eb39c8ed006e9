"""Tiny GLM-4v in vLLM against the trainer's model: the greatest difference of log-probabilities.

Run in a process of its own (`run_python`); one line of JSON says what was measured.
"""

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chatglm4v.reading import BOI, EOI, PAD, lively_model, tiny_config
from PIL import Image
from support import cpu_engines  # noqa: F401
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory

from swift_vlrft.chatglm4v.image_processor import ChatGLM4VImageProcessor
from swift_vlrft.chatglm4v.modeling import ChatGLM4VForConditionalGeneration as Model
from swift_vlrft.chatglm4v.vllm_plugin import HF_OVERRIDES

SPECIAL = {PAD: "<|endoftext|>", BOI: "<|begin_of_image|>", EOI: "<|end_of_image|>"}
# A prompt and its image: two that begin alike, one of text, one that begins with its image, a long
# one, and one token.
PROMPTS: list[tuple[list[int], int | None]] = [
    ([5, 6, 7, BOI, PAD, EOI, *range(10, 30)], 0),
    ([5, 6, 7, BOI, PAD, EOI, *range(10, 25), 77], 0),
    ([*range(40, 60)], None),
    ([BOI, PAD, EOI, 9], 1),
    ([*[3] * 60, BOI, PAD, EOI, 9, 9], 1),
    ([9], None),
]


def written(folder: Path, **changes: Any) -> Model:
    """With 16 patches an image."""
    vision = tiny_config().vision_config | {"image_size": 112, "num_positions": 65}
    model = lively_model(vision_config=vision, **changes)
    model.save_pretrained(folder)
    words = {SPECIAL.get(i, f"t{i}"): i for i in range(model.config.padded_vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"eos_token": SPECIAL[PAD], "pad_token": SPECIAL[PAD]}
    names |= {"additional_special_tokens": [*SPECIAL.values()]}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return model


def images() -> list[Image.Image]:
    """Of other sizes than the model's."""
    random, sizes = np.random.default_rng(0), ((90, 200), (130, 70))
    colours = [random.integers(0, 255, (*size, 3), dtype=np.uint8) for size in sizes]
    return list(map(Image.fromarray, colours))


class Engine:
    """vLLM on a folder, in this process; every row is compared with ``model``."""

    def __init__(self, folder: Path, overrides: dict[str, Any] = HF_OVERRIDES, **flags: Any):
        self.images = images()
        flags = {"dtype": "float32", "enforce_eager": True, "max_model_len": 256} | flags
        self.llm = LLM(str(folder), hf_overrides=dict(overrides), block_size=32, **flags)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *error: object) -> None:
        del self.llm
        gc.collect()
        cleanup_dist_env_and_memory()

    def differences(
        self, model: Model, tokens: int = 24, prompt_too: bool = True
    ) -> dict[str, float]:
        """The greatest |engine - trainer| over tokens of the prompts and of the completions, for
        rows with and without an image.
        """
        asked = [
            {"prompt_token_ids": ids}
            | ({} if image is None else {"multi_modal_data": {"image": self.images[image]}})
            for ids, image in PROMPTS
        ]
        prompt_too = 0 if prompt_too else None
        sampling = SamplingParams(max_tokens=tokens, logprobs=0, prompt_logprobs=prompt_too)
        answers = self.llm.generate(asked, sampling, use_tqdm=False)
        processor = ChatGLM4VImageProcessor.of(model.config)
        pixels = processor(self.images, return_tensors="pt").pixel_values
        worst: dict[str, float] = {"cached": 0, "spread": 0}
        for (_, image), answer in zip(PROMPTS, answers, strict=True):
            prompt, completion = answer.prompt_token_ids, answer.outputs[0]
            ids = [*prompt, *completion.token_ids]
            said = [*(answer.prompt_logprobs or [None] * len(prompt)), *completion.logprobs]
            with torch.no_grad():
                logits = model(
                    torch.tensor([ids]),
                    pixel_values=None if image is None else pixels[image : image + 1],
                ).logits[0]
            trained = logits.log_softmax(-1).tolist()
            for i in range(1, len(ids)):
                if said[i] is not None:
                    name = "text" if image is None else "image"
                    name += " prompt" if i < len(prompt) else " completion"
                    difference = abs(said[i][ids[i]].logprob - trained[i - 1][ids[i]])
                    worst[name] = max(worst.get(name, 0), difference)
            worst["cached"] += answer.num_cached_tokens or 0
            worst["spread"] = max(worst["spread"], float(logits.std()))
        return worst


def measure(folder: Path) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    glm = written(folder / "glm")
    cogagent = written(folder / "cogagent", original_rope=False, dtype="bfloat16")
    chunked = {"enable_chunked_prefill": True, "max_num_batched_tokens": 16, "max_num_seqs": 4}
    with Engine(folder / "glm", enable_prefix_caching=True, **chunked) as engine:
        measured["chunked"] = engine.differences(glm)
        measured["cached"] = engine.differences(glm, prompt_too=False)
    few = {"num_gpu_blocks_override": 9, "enable_prefix_caching": False}
    with Engine(folder / "glm", **few) as engine:  # not all rows at once: some start again
        measured["preempted"] = engine.differences(glm, tokens=100)
    with Engine(folder / "cogagent") as engine:
        measured["cogagent"] = engine.differences(cogagent)
    try:
        Engine(folder / "glm", {"architectures": HF_OVERRIDES["architectures"]})
    except ValueError as error:
        measured["refused"] = str(error)
    return measured


def main(folder: str) -> None:
    print(json.dumps(measure(Path(folder))))
