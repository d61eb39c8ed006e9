"""What may not leave this machine in a card or a configuration: secrets, and where files lie.

without_secrets({"model": "/home/me/models/qwen", "hub_token": "hf_..."})    {"model": "qwen"}
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from swift_vlrft.report.run_log import SECRET

_SECRETS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|ms-[0-9a-f]{8}-[0-9a-f-]{20,}|(?:sk|gh[pousr]|glpat|xox[bap])[-_]"
    r"[A-Za-z0-9_-]{16,}|github_pat_\w{20,}|AKIA[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{35}|[0-9a-f]{40}|"
    r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*)(?![A-Za-z0-9])"
)
"""Values that are a token, whatever their setting is called; 40 digits are a key of W&B."""
_NAMED = re.compile(
    r"((?:[?&\"']|\b(?=[A-Z_]+=)|(--))[\w-]*(?:token|secret|passw\w*|api_?key|credential|signature)"
    r"[\"']?(?:\s*[=:]\s*|(?(2)\s+|(?!)))[\"']?)(?!(?:[\d.]+|true|false|null)\b)[^\s\"'&,;}]+",
    re.IGNORECASE,
)
"""One that a text names: in a URL, in JSON, as a flag, as a variable."""
_LOGIN = re.compile(r"(?<=://)[^/\s\"'?#]+@")
_PATH = re.compile(
    r"(?<![\w./\\<])(?<!:(?=//))(?:(?:file://|~)?(?:/[^\s/\\'\"`<>|,;:#()\[\]{}]+){2,}/?|"
    r"[A-Za-z]:(?:[/\\][^\s/\\'\"`<>|,;:#()\[\]{}]+)+[/\\]?)"
)
"""An absolute path of two names or more inside a text; no part of a URL. Backslashes alone make
none: LaTeX and templates are full of them.
"""


def clean_text(text: str) -> str:
    """The text without tokens, and of absolute paths the last name only."""
    whole = text.strip()
    if whole.startswith("/") and len(whole) < 4096 and Path(whole).exists():
        return Path(whole).name  # which may hold blanks
    text = _NAMED.sub(r"\1[removed]", _LOGIN.sub("", _SECRETS.sub("[removed]", text)))
    return _PATH.sub(lambda found: _last(found[0]), text)


def is_path(text: str) -> bool:
    """Whether the whole text is an absolute path."""
    return _PATH.fullmatch(text.strip()) is not None


def _last(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def clean(value: Any) -> Any:
    """Every text in it as ``clean_text`` has it, at any depth; names of settings stay. Templates
    keep all but tokens: they are the model's, and a letter less would change what it reads.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {
            key: _template(of) if str(key).endswith("template") else clean(of)
            for key, of in value.items()
        }
    return [clean(of) for of in value] if isinstance(value, (list, tuple)) else value


def _template(value: Any) -> Any:
    if isinstance(value, str):
        return _SECRETS.sub("[removed]", value)
    if isinstance(value, dict):
        return {key: _template(of) for key, of in value.items()}
    return [_template(of) for of in value] if isinstance(value, list) else value


def without_secrets(settings: Any) -> Any:
    """The same without settings that are named like a secret, at any depth."""
    if isinstance(settings, dict):
        kept = {k: v for k, v in settings.items() if not SECRET.search(str(k))}
        return {key: without_secrets(of) for key, of in kept.items()}
    if isinstance(settings, (list, tuple)):
        return [without_secrets(of) for of in settings]
    return clean(settings)


def name_of(path: str) -> str:
    """What a model or a set is called: a hub id as it is, of a path the last name, of a checkpoint
    that of its run before it. A format or a count behind it (":pixels#500") stays.
    """
    if is_hub_id(path):
        return path
    parts = [part for part in re.split(r"[/\\]", path) if part not in ("", ".", "..", "~")]
    if len(parts) > 1 and parts[-1].startswith("checkpoint-"):
        return "/".join(parts[-2:])
    return parts[-1] if parts else path


_HUB_ID = re.compile(r"(?:(?:hf|ms)::)?[\w][\w.-]*/[\w][\w.-]*(?::[\w/:.-]+)?(?:#\d+)?", re.ASCII)


def is_hub_id(text: str) -> bool:
    """Whether this is ORG/NAME and no folder here; "hf::" or "ms::" may stand before it."""
    if not _HUB_ID.fullmatch(text):
        return False
    if text.startswith(("hf::", "ms::")):
        return True
    path = re.split("[:#]", text)[0]
    return not Path(path).exists()


_HF_CACHE = re.compile(r"models--([\w.-]+?)--([\w.-]+)(?:/|$)", re.ASCII)
_MS_CACHE = re.compile(r"/hub/models/([\w.-]+)/([\w.-]+)/?$|/models/([\w.-]+)/([\w.-]+)/snapshots/")


def cached_id(path: str) -> str | None:
    """The id under which a hub's library keeps a model at ``path``, in its cache."""
    if found := _HF_CACHE.search(path):
        return f"{found[1]}/{found[2]}"
    if "modelscope" in path and (found := _MS_CACHE.search(path)):
        return f"{found[1]}/{found[2]}".replace("___", ".")
    return None
