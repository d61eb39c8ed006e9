"""Turn GLM-4's published tokenizer.model into a fast tokenizer with the same ids.

    tokenizer = tokenizer_of(Path("glm-4v-9b"))
    tokenizer("hi")["input_ids"]                        [151331, 151333, 6023]: [gMASK]<sop>hi

The file has a line per token, its bytes in base64 and its rank, which is its id: the format of
tiktoken. A piece of text that is no token itself is merged from its bytes, always the pair first
whose union has the lowest rank.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from tokenizers.pre_tokenizers import PreTokenizer
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter, bytes_to_unicode

from swift_vlrft.families.chatglm4v import SPECIAL_IDS

PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How text is cut before merging: no token crosses a cut."""

_BYTES = {letter: byte for byte, letter in bytes_to_unicode().items()}

PREFIX = ("[gMASK]", "<sop>")
"""What begins every prompt: the tokenizer writes it."""


def tokenizer_of(folder: Path) -> PreTrainedTokenizerFast:
    """Return a checkpoint's tokenizer, from its tokenizer.json or else its tokenizer.model."""
    if (folder / "tokenizer.json").is_file():
        return PreTrainedTokenizerFast.from_pretrained(folder)
    return fast_tokenizer(read_ranks(folder / "tokenizer.model"), chat_template_of(folder))


def chat_template_of(folder: Path) -> str | None:
    """Read a checkpoint's chat template, from its own file or tokenizer_config.json."""
    if (file := folder / "chat_template.jinja").is_file():
        return file.read_text(encoding="utf-8")
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    template = settings.get("chat_template") if isinstance(settings, dict) else None
    return template if isinstance(template, str) else None


def read_ranks(file: Path) -> dict[bytes, int]:
    """Read tokens of a tokenizer.model by their bytes; ValueError names the line that fails."""
    ranks = {}
    where = "its beginning"
    try:
        for number, line in enumerate(file.read_text(encoding="ascii").splitlines(), start=1):
            where = f"line {number}"
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}; GLM-4V is published with this file") from error
    except ValueError as error:
        raise ValueError(
            f"{file}: {where} is no token in base64 with its rank; download the file again"
        ) from error
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise ValueError(
            f"{file}: no token for the byte {missing[0]} ({len(missing)} of 256 are missing); "
            "download the file again"
        )
    return ranks


class _OfRanks(TikTokenConverter):
    """Converts ranks that are read already, where transformers names a file."""

    @staticmethod
    def load_tiktoken_bpe(ranks: Any) -> Any:
        return ranks


def fast_tokenizer(
    ranks: Mapping[bytes, int], chat_template: str | None = None
) -> PreTrainedTokenizerFast:
    """Build a tokenizer with tiktoken's ids for these ranks and the published special tokens."""
    vocabulary, merges = _OfRanks().extract_vocab_merges_from_model(ranks)
    tokenizer = Tokenizer(models.BPE(vocabulary | SPECIAL_IDS, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pieces()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in SPECIAL_IDS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*PREFIX, "$A"],
        pair=[*PREFIX, "$A", "$B:1"],
        special_tokens=[(token, SPECIAL_IDS[token]) for token in PREFIX],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL_IDS),
        padding_side="left",
        model_max_length=128000,
        clean_up_tokenization_spaces=False,
        chat_template=chat_template,
    )


def pieces() -> PreTokenizer:
    """Cut text, and write every byte as a letter."""
    cut = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([cut, letters])


def as_bytes(token: str) -> bytes:
    """Return a token's bytes, for each of which ``pre_tokenizers.ByteLevel`` writes a letter."""
    return bytes(_BYTES[letter] for letter in token)
