"""Make a tiny checkpoint that learns on a CPU: small images, and the vocabulary of its data set.

    write_compact("internvl", Path("random"), prompts, answers, side=112)      # 0.6 M parameters

With the 150,000 tokens of a real vocabulary nine tenths of the time go into them. Here special
tokens have the ids from 0 on, and what stands in many prompts or answers is one token: an answer
with one box takes eleven.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.families import FAMILIES, internvl, known_family
from swift_vlrft.families.family import Family, Tiny, TinySize
from swift_vlrft.families.resize import SmartResize
from swift_vlrft.tiny import checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COMPACT = tuple(
    name for name, family in FAMILIES.items() if family.images and not family.tiny.has_ranks
)
"""Families that have a compact model."""
SIZE = TinySize(hidden=128)
_NUMBER = r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])"


def write_compact(
    name: str,
    directory: Path,
    prompts: Sequence[str],
    answers: Sequence[str],
    *,
    side: int,
    size: TinySize = SIZE,
    seed: int = 0,
) -> tuple[PreTrainedTokenizerBase, int]:
    """Write a random compact checkpoint; return its tokenizer and number of parameters."""
    family = known_family(name)
    tiny = compact(family, side)
    corpus = [*checkpoint.DEFAULT_CORPUS, "user assistant system", *prompts, *answers]
    tokenizer = checkpoint.build_tokenizer(tiny, corpus, frequent_texts(prompts, answers))
    tiny = replace(tiny, vocabulary=-(-(max(tokenizer.get_vocab().values()) + 1) // 64) * 64)
    model = checkpoint.build_model(tiny, size, seed=seed)
    # ms-swift would look for the image of an image token that the model wrote.
    marks = tiny.special_ids.keys() - {tiny.eos, *checkpoint.TAGS}
    model.generation_config.update(suppress_tokens=sorted(tiny.special_ids[mark] for mark in marks))
    checkpoint.save_checkpoint(model, tokenizer, replace(family, tiny=tiny), directory)
    return tokenizer, model.num_parameters()


def compact(family: Family, side: int) -> Tiny:
    """Return the family's compact model; its vocabulary is still to be chosen.

    Images have about ``side`` x ``side`` pixels, a multiple of 28. ValueError lists the families
    that have such a model.
    """
    checkpoint.need_torchvision()
    tiny = family.tiny
    if tiny.has_ranks or family.images is None:
        raise ValueError(
            f"{family.name} has no tiny model that learns on a CPU; known: {', '.join(COMPACT)}"
        )
    if family is internvl.FAMILY:
        tiny = internvl.tiny_internvl(side, {}, most=1)
    ids = {name: number for number, name in enumerate(tiny.special_ids)}
    moved = {tiny.special_ids[name]: number for name, number in ids.items()}

    def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
        from transformers import AutoConfig

        values = AutoConfig.for_model(**tiny.config(size, vocabulary)).to_dict()
        return _moved(values, moved)

    options = dict(tiny.image_options)
    if "max_pixels" in options:
        options["max_pixels"] = side * side
    images = family.images
    if isinstance(images, SmartResize) and not images.from_environment:  # deaf to MAX_PIXELS
        least = images.frames * images.factor**2
        options["size"] = {"shortest_edge": least, "longest_edge": images.frames * side * side}
    return replace(tiny, special_ids=ids, vocabulary=0, config=config, image_options=options)


def _moved(values: dict[str, Any], ids: Mapping[int, int]) -> dict[str, Any]:
    """Return the configuration with the new ids of its special tokens."""
    return {
        key: _moved(value, ids)
        if isinstance(value, dict)
        else ids.get(value, value)
        if isinstance(value, int) and key.endswith(("_token_id", "_token_index"))
        else value
        for key, value in values.items()
    }


def frequent_texts(prompts: Sequence[str], answers: Sequence[str]) -> list[str]:
    """Return the texts that become one token: sentences of a fiftieth of the prompts, and what
    stands between the numbers of three answers or more.
    """
    sentences = Counter(
        text for prompt in prompts for text in set(re.findall(r"[^.?!\n]+[.?!\n]*", prompt))
    )
    between = Counter(text for answer in answers for text in set(re.split(_NUMBER, answer)))
    often = [text for text, n in sentences.most_common(200) if n >= max(3, 0.02 * len(prompts))]
    parts = [text for text, n in between.most_common(200) if n >= 3 and len(text) > 1]
    return [*parts, *often]
