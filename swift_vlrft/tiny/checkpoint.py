"""Tiny random checkpoints of the real architectures, for machines without a GPU.

    write_tiny("qwen2_5_vl", Path("tiny"))      # 10 M parameters, 45 MB, seconds, no network

What is written is what ms-swift, transformers and vLLM expect of the real model: the transformers
architecture with its own configuration class, a processor, a chat template, and a byte-level BPE
tokenizer in which the special tokens have the ids of the real vocabulary. They must: ms-swift's
templates name some of them by number (``Qwen2VLTemplate.image_token_id`` is 151655,
``GLM4VTemplate.begin_of_image_token`` 151339). The ids between the few real tokens and the
special ones name no token, and are decoded as nothing; the model has a row for each, so nearly all
of a checkpoint is its embedding.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from swift_vlrft.tiny.families import Family, Size, known_family

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Tags and whole numbers are single tokens, so that a tiny model can answer in a few steps.
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
NUMBERS = tuple(str(n) for n in range(10, 1001))

# Text that the tokenizer's merges are learnt from when the caller brings none.
DEFAULT_CORPUS = (
    "Find the object in the image. Detect all objects belonging to the category.",
    "Answer with its box: [{'Position': [x1, y1, x2, y2], 'Confidence': c}]. No Objects.",
    "Output the thinking process in <think> </think>, the final answer in <answer> </answer> tags.",
    "What is in this image? red green blue yellow",
)


def build_tokenizer(
    family: Family, corpus: Iterable[str] = DEFAULT_CORPUS
) -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer that can write any text, with the family's special tokens at
    their real ids: about 1,400 tokens, ids up to 151,656.
    """
    import transformers
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        min_frequency=1,
        initial_alphabet=alphabet,
        show_progress=False,
        special_tokens=[],
    )
    learner.train_from_iterator(corpus, trainer)
    learnt = json.loads(learner.to_str())["model"]
    vocab: dict[str, int] = dict(learnt["vocab"])
    words = [w for w in (*TAGS, *NUMBERS) if w not in family.special_ids]
    for word in words:
        vocab.setdefault(word, len(vocab))
    vocab |= family.special_ids
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learnt["merges"]]

    tokenizer_class = getattr(transformers, family.tokenizer_class)
    if tokenizer_class is transformers.PreTrainedTokenizerFast:
        raw = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        from tokenizers import decoders

        raw.decoder = decoders.ByteLevel()
        tokenizer = tokenizer_class(tokenizer_object=raw, eos_token=None, pad_token=None)
    else:
        tokenizer = tokenizer_class(vocab=vocab, merges=merges, **family.tokenizer_options)
    # The ids come from the vocabulary above; whole they are kept by being added.
    known = [*family.special_ids, *words]
    tokenizer.add_tokens(
        [
            AddedToken(t, special=t in family.special_ids and t not in TAGS, normalized=False)
            for t in known
        ]
    )
    tokenizer.eos_token, tokenizer.pad_token = family.eos, family.pad
    for name, wanted in family.special_ids.items():
        got = tokenizer.convert_tokens_to_ids(name)
        if got != wanted:
            raise RuntimeError(
                f"special token {name} got id {got}, the real vocabulary has {wanted}"
            )
    return tokenizer


def build_model(
    family: Family, size: Size, *, seed: int = 0, vocab_size: int | None = None
) -> PreTrainedModel:
    """The real transformers class with random float32 weights; another ``vocab_size`` has no
    special tokens set.
    """
    import torch
    import transformers

    config = family.config(size, family.vocab_size if vocab_size is None else vocab_size)
    if vocab_size is None:
        config.get_text_config().eos_token_id = family.special_ids[family.eos]
        config.get_text_config().pad_token_id = family.special_ids[family.pad]
    torch.manual_seed(seed)
    model: PreTrainedModel = getattr(transformers, family.model_class)(config)
    model.generation_config.eos_token_id = family.special_ids[family.eos]
    model.generation_config.pad_token_id = family.special_ids[family.pad]
    return model


def save_checkpoint(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, family: Family, directory: Path
) -> None:
    """Write model, tokenizer and processor as the hub would hold them; the folder appears only
    when it is whole.
    """
    import transformers

    directory = Path(directory)
    if directory.exists():
        raise FileExistsError(f"{directory} exists; choose a new folder or delete it first")
    half = directory.with_name(directory.name + ".writing")
    shutil.rmtree(half, ignore_errors=True)
    half.parent.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(half)
    if family.processor_class:
        image_processor = getattr(transformers, family.image_processor_class)
        getattr(transformers, family.processor_class)(
            image_processor=image_processor(**family.image_options),
            tokenizer=tokenizer,
            video_processor=getattr(transformers, family.video_processor_class)(),
            chat_template=family.chat_template,
            **family.processor_options,
        ).save_pretrained(half)
    else:
        tokenizer.chat_template = family.chat_template
        tokenizer.save_pretrained(half)
    # As in ms-swift's own checkpoints: several of its templates share an architecture, this names
    # the one meant.
    model_type = model.config.model_type
    (half / "args.json").write_text(
        json.dumps(
            {
                "swift_version": "4.6.0",
                "model_type": model_type,
                "template": family.swift_template or model_type,
            },
            indent=2,
        )
    )
    half.rename(directory)


def write_tiny(
    family_name: str,
    directory: Path,
    *,
    size: Size | None = None,
    seed: int = 0,
    corpus: Iterable[str] = DEFAULT_CORPUS,
) -> int:
    """Write a tiny random checkpoint and return its number of parameters."""
    family = known_family(family_name)
    if Path(directory).exists():
        raise FileExistsError(f"{directory} exists; choose a new folder or delete it first")
    model = build_model(family, size or Size(), seed=seed)
    save_checkpoint(model, build_tokenizer(family, corpus), family, Path(directory))
    return sum(p.numel() for p in model.parameters())
