"""Only this module says what a secret is, by the name of a setting or the form of its value.

    is_secret_name("hub_token"), is_secret_name("max_new_tokens")      True, False
    has_secret_form("http://me:word@host/v1")                         True
    holds_secret('{"api_key": "abc"}')                                True, by the name in the text

Names are those of flags, variables and settings; special tokens of a tokenizer (``bos_token``) are
named like secrets, and told apart by their values: ``is_secret("bos_token", "<s>")`` is False.
"""

from __future__ import annotations

import re

_WORDS = (
    r"secret|passw|credential|webhook|cookie|authorization|(?:api|access|private)[_-]?key"
    r"|token(?:$|(?=[\"'=: ]))|[_-]key(?:$|(?=[\"'=: ]))"
)
_NAME = re.compile(rf"{_WORDS}|^key$", re.IGNORECASE)
_NO_SECRET = re.compile(
    r"\w+_(?:projection_prng|layer|tag)_key|(?:[bes]os|unk|pad|sep|cls|mask|\w*(?:image|video))_token",
    re.IGNORECASE,
)
"""Flags of ms-swift that end like a key (seeds, names of layers and of columns), and the special
tokens that tokenizers name.
"""
_FORM = re.compile(
    # Hugging Face, ModelScope, OpenAI and its like, GitHub, GitLab, Slack, AWS, Google, a JWT
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|ms-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{4,}"
    r"|(?:sk|gh[a-z]|glpat|xox[a-z])[-_](?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}|github_pat_\w{20,}"
    r"|AKIA[A-Z0-9]{16}|AIza[\w-]{35}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
    r"|(?i:\bBearer [\w.~+/-]{8,})"
    # A login in an address: ssh's git@ holds none
    r"|://(?!git@)[^/\s\"'<>?#]*@"
    r"|(?i:[?&][\w-]*(?:token|secret|passw\w*|key|sig|signature|credentials?)=[^&\s])"
)
_NAMED = re.compile(
    rf"(?:[\"'][\w-]*(?:{_WORDS})\w*\\*[\"']\s*:\s*|\b(?=[A-Z0-9_]+=)\w*(?:{_WORDS})\w*="
    rf"|--[\w-]*(?:{_WORDS})[\w-]*[=\s]\s*)\\*[\"']?"
    r"(?!(?:[\d.]+|true|false|null|none)\b|[<\[\s\"'$\\])[^\s,}]",
    re.IGNORECASE,
)
"""A name in JSON, of a variable in capitals, or of a flag, and a value that is none of ``<s>``, a
number, or a variable. A text with ``bos_token = ...`` in it, as templates have, is none of them.
"""


def is_secret_name(name: str) -> bool:
    """Tell whether a flag, variable or setting of this name holds a secret."""
    return bool(_NAME.search(name)) and not _NO_SECRET.fullmatch(name)


def has_secret_form(text: str) -> bool:
    """Tell whether a text holds a secret by its form alone: a token, or a login in a URL."""
    return bool(_FORM.search(text))


def holds_secret(text: str) -> bool:
    """Tell whether a text holds a secret by its form, or a value under a secret's name."""
    return bool(_FORM.search(text) or _NAMED.search(text))


def is_secret(name: str, value: object) -> bool:
    """Tell whether a setting and its value are a secret: a special token, ``<s>``, is none."""
    if not isinstance(value, str) or not value:
        return False
    special = value[0] in "<[" or len(value) < 8
    return holds_secret(value) or (is_secret_name(name) and not special)
