"""Make tiny random checkpoints of the real architectures, for machines without a GPU.

    write_tiny("qwen2_5_vl", Path("tiny"))      # 10 M parameters, 45 MB, seconds, no network

It has what ms-swift, transformers and vLLM expect of the real model: its configuration class, a
processor, a chat template, and a byte-level BPE tokenizer whose special tokens have the ids of the
real vocabulary, as ms-swift's templates hard-code some (``Qwen2VLTemplate.image_token_id`` is
151655). The ids between are unused and decode to nothing, but the embedding has a row for each, so
it makes up nearly all of the checkpoint.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.families import known_family
from swift_vlrft.families.family import Family, Tiny, TinySize

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

CHAT_TEMPLATES = Path(__file__).with_name("chat_templates")

# Tags and integers are single tokens, so that a tiny model can answer in a few steps.
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
NUMBERS = tuple(str(n) for n in range(10, 1001))

# Text from which the tokenizer's merges are learnt by default.
DEFAULT_CORPUS = (
    "Find the object in the image. Detect all objects belonging to the category.",
    "Answer with its box: [{'Position': [x1, y1, x2, y2], 'Confidence': c}]. No Objects.",
    "Output the thinking process in <think> </think>, the final answer in <answer> </answer> tags.",
    "What is in this image? red green blue yellow",
)


def need_torchvision() -> None:
    """Raise ModuleNotFoundError without torchvision: every model's image processor needs it."""
    if find_spec("torchvision") is None:
        raise ModuleNotFoundError(name="torchvision")


def build_tokenizer(
    tiny: Tiny, corpus: Iterable[str] = DEFAULT_CORPUS, whole: Sequence[str] = ()
) -> PreTrainedTokenizerBase:
    """Build a byte-level BPE tokenizer with the family's special tokens at their real ids.

    It can write any text: about 1,400 tokens, and a token for each text in ``whole``.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import TOKENIZER_MAPPING, AutoConfig, TokenizersBackend

    if tiny.has_ranks:
        return _tokenizer_of_ranks(tiny, corpus)
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learnt = _learn(bytes_, corpus)
    words = [word for word in (*TAGS, *NUMBERS, *whole) if word not in tiny.special_ids]
    taken = set(tiny.special_ids.values())  # Gemma's begin at 0
    free = (number for number in itertools.count() if number not in taken)
    ordinary = dict.fromkeys((*sorted(learnt["vocab"], key=learnt["vocab"].get), *words))
    vocabulary = dict(zip(ordinary, free, strict=False)) | dict(tiny.special_ids)
    merges = [tuple(pair) for pair in learnt["merges"]]
    config = AutoConfig.for_model(**tiny.config(TinySize(), tiny.vocabulary))
    tokenizer_class = TOKENIZER_MAPPING.get(type(config), None) or TokenizersBackend
    if tokenizer_class.__name__ == "TokenizersBackend":  # the model has no class of its own
        raw = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        raw.pre_tokenizer, raw.decoder = bytes_, decoders.ByteLevel()
        options = {"eos_token": None, "pad_token": None, **tiny.tokenizer_options}
        tokenizer = tokenizer_class(tokenizer_object=raw, **options)
    else:
        tokenizer = tokenizer_class(vocab=vocabulary, merges=merges, **tiny.tokenizer_options)
    # The ids come from the vocabulary above; added tokens are never split.
    special = tiny.special_ids.keys() - set(TAGS)
    names = (*tiny.special_ids, *words)
    tokenizer.add_tokens([AddedToken(t, special=t in special, normalized=False) for t in names])
    tokenizer.eos_token, tokenizer.pad_token = tiny.eos, tiny.pad
    return tokenizer


def _learn(pre_tokenizer: PreTokenizer, corpus: Iterable[str]) -> dict[str, Any]:
    """Return the vocabulary and merges of a byte-level BPE model of that text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        min_frequency=1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    learner.train_from_iterator(corpus, trainer)
    learnt: dict[str, Any] = json.loads(learner.to_str())["model"]
    return learnt


def _tokenizer_of_ranks(tiny: Tiny, corpus: Iterable[str]) -> PreTrainedTokenizerBase:
    """Build a tokenizer of a family that publishes a list of ranks. Tags are several tokens there,
    and a number of up to three digits is a single token.
    """
    from swift_vlrft.chatglm4v.tokenizer import as_bytes, fast_tokenizer, pieces

    learnt = _learn(pieces(), corpus)["vocab"]
    ranks = {as_bytes(token): rank for token, rank in learnt.items()}
    for word in NUMBERS:
        ranks.setdefault(word.encode(), len(ranks))
    return fast_tokenizer(ranks, _chat_template(tiny))


def build_model(
    tiny: Tiny, size: TinySize | None = None, *, seed: int = 0, vocabulary: int | None = None
) -> PreTrainedModel:
    """Build the real transformers class with random float32 weights. With another ``vocabulary`` no
    special tokens are set.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    from swift_vlrft.chatglm4v import register

    eos, pad = tiny.special_ids[tiny.eos], tiny.special_ids[tiny.pad]
    values = tiny.config(size or TinySize(), vocabulary or tiny.vocabulary)
    if tiny.has_ranks:
        register()
    config = AutoConfig.for_model(**values)
    if vocabulary is None:
        text = config.get_text_config()
        text.eos_token_id, text.pad_token_id = text.eos_token_id or eos, pad
    torch.manual_seed(seed)
    sees = "vision_config" in values
    auto = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    model: PreTrainedModel = auto.from_config(config)
    model.generation_config.eos_token_id = config.get_text_config().eos_token_id or eos
    model.generation_config.pad_token_id = pad
    return model


def build_processor(
    tiny: Tiny, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig
) -> Any:
    """Build the processor of that configuration; for a model without one, the tokenizer."""
    from transformers import (
        CONFIG_MAPPING,
        FEATURE_EXTRACTOR_MAPPING,
        IMAGE_PROCESSOR_MAPPING,
        PROCESSOR_MAPPING,
        VIDEO_PROCESSOR_MAPPING,
    )

    kind = CONFIG_MAPPING[tiny.processor_type] if tiny.processor_type else type(config)
    processor = PROCESSOR_MAPPING.get(kind, None)
    if processor is None:
        tokenizer.chat_template = _chat_template(tiny)
        return tokenizer
    sound = FEATURE_EXTRACTOR_MAPPING.get(kind, None)
    return processor(
        **({"feature_extractor": sound()} if sound else {}),
        image_processor=IMAGE_PROCESSOR_MAPPING[kind]["torchvision"](**tiny.image_options),
        tokenizer=tokenizer,
        video_processor=VIDEO_PROCESSOR_MAPPING[kind]["torchvision"](),
        chat_template=_chat_template(tiny),
        **tiny.processor_options,
    )


def save_checkpoint(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, family: Family, directory: Path
) -> None:
    """Write model, tokenizer and processor in the hub's layout. The folder appears only when it is
    complete. ``family.tiny`` is what they were built from.
    """
    refuse_existing(directory)
    half = directory.with_name(directory.name + ".writing")
    shutil.rmtree(half, ignore_errors=True)
    half.parent.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(half)
    build_processor(family.tiny, tokenizer, model.config).save_pretrained(half)
    # As in checkpoints of ms-swift: several of its templates share an architecture, and this file
    # names the right one.
    named = {"model_type": family.model_types[0], "template": next(iter(family.templates))}
    (half / "args.json").write_text(json.dumps({"swift_version": "4.6.0", **named}, indent=2))
    half.rename(directory)


def _chat_template(tiny: Tiny) -> str:
    return (CHAT_TEMPLATES / f"{tiny.chat_template}.jinja").read_text()


def refuse_existing(directory: Path) -> None:
    if directory.exists():
        raise FileExistsError(f"{directory} exists; choose a new folder or delete it first")


def write_tiny(name: str, directory: Path, *, seed: int = 0) -> int:
    """Write a tiny random checkpoint of that family and return its number of parameters."""
    need_torchvision()
    family = known_family(name)
    refuse_existing(directory)
    model = build_model(family.tiny, seed=seed)
    if name != family.name and name != (model_type := model.config.model_type):
        raise ValueError(f"no tiny {name}: the tiny {family.name} is a {model_type}")
    save_checkpoint(model, build_tokenizer(family.tiny), family, directory)
    return int(model.num_parameters())
