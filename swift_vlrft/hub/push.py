"""Publish files on a hub, through the hub's own library.

    upload({"README.md": b"...", "data/train-0.parquet": Path(...)}, "hf", "me/coco8", "dataset")
    "https://huggingface.co/datasets/me/coco8"

What goes up is what is named, nothing else that may lie beside it. The token is read from the
environment and handed to the library. A server may repeat in its error what it was sent, so the
token is taken out of what the library logs and raises.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.parse import quote

from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.writing import DiskFull, space_named, write_atomically

TOKENS = {"hf": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}
PAGES = {"hf": "huggingface.co/settings/tokens", "modelscope": "modelscope.cn/my/access/token"}
SHORT = {"ms": "modelscope"}

Files = Mapping[str, Path | bytes]
"""What goes up: its path in the repository, and where it lies, or what it holds."""
Kind = Literal["dataset", "model"]
COMMANDS = {"dataset": "data push", "model": "publish"}


class HubError(ValueError):
    """The hub refused the files; the message is its answer, without the token."""

    exit_code = 1


def check_target(hub: str, repo: str, example: str) -> str:
    """Return the hub's name in full; DataError if hub or repository cannot be."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    hub = SHORT.get(hub, hub)
    if hub not in TOKENS:
        raise DataError(f"--hub {hub}: unknown; known: {', '.join((*TOKENS, *SHORT))}")
    expected = f"--repo {repo}: expected ORG/NAME, for instance me/{example}"
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise DataError(expected)
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise DataError(f"{expected} ({error})") from None
    return hub


def upload(
    files: Files,
    hub: str,
    repo: str,
    kind: Kind,
    *,
    what: str,
    licence: str | None = None,
    private: bool = False,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Create the repository where it is not there yet, upload the files, return its page. ``what``
    names them in messages.

    DataError if the token is missing; HubError where the hub refuses or is out of reach.
    """
    token = (os.environ if environ is None else environ).get(TOKENS[hub], "").strip()
    if not token:
        raise DataError(
            f"{TOKENS[hub]} is not set; get a token that may write at https://{PAGES[hub]} and "
            f"export it as {TOKENS[hub]}"
        )
    try:
        api, create, more = _client(hub, token, private, licence)
        # ModelScope's library reports on stdout, which is ours for the result.
        with staged(files) as folder, _logged_without(token), redirect_stdout(sys.stderr):
            api.create_repo(repo, repo_type=kind, exist_ok=True, **create)
            api.upload_folder(
                repo_id=repo,
                repo_type=kind,
                folder_path=folder,
                commit_message=f"Upload with vlrft {COMMANDS[kind]}",
                **more,
            )
    except DiskFull:
        raise
    except Exception as error:  # each library has many kinds of its own
        text = _without(token, f"{type(error).__name__}: {error}")
        raise HubError(f"{hub} refused {what} as {repo}: {text}") from None
    middle = {"dataset": "datasets/", "model": "models/" if hub == "modelscope" else ""}[kind]
    return f"{api.endpoint}/{middle}{repo}"


@contextmanager
def staged(files: Files) -> Iterator[Path]:
    """Yield a folder of links and small files, as the repository will be; the originals stay."""
    with TemporaryDirectory(prefix="vlrft-") as name:
        folder = Path(name)
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                target.symlink_to(content.resolve())
            else:
                with space_named(target):
                    target.write_bytes(content)
        yield folder


def write_card_only(files: Files, folder: Path) -> Path:
    """Write the card, to look at; DataError where a file of the repository is there already."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; name a folder for the card")
    if there := [name for name in files if (folder / name).exists()]:
        raise DataError(f"{folder / there[0]} is there already; name a new folder for the card")
    card = files["README.md"]
    content = card if isinstance(card, bytes) else card.read_bytes()
    write_atomically(folder / "README.md", content)
    return folder / "README.md"


def _client(
    hub: str, token: str, private: bool, licence: str | None
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The library's client, and what its create_repo and upload_folder take besides."""
    if hub == "hf":
        from huggingface_hub import HfApi

        return HfApi(token=token), {"private": private}, {}
    from modelscope.hub.api import HubApi

    # Left out, the library would state Apache-2.0 for what is not ours to license.
    create = {"visibility": "private" if private else "public", "license": licence or "other"}
    # The library's cache would lie in the folder and outlive a deleted repository; what the hub
    # holds already is not sent again either way.
    return HubApi(token=token), create, {"use_cache": False}


def _without(token: str, text: str) -> str:
    for form in (token, quote(token, safe=""), repr(token)[1:-1]):
        text = text.replace(form, "[token]")
    return text


@contextmanager
def _logged_without(token: str) -> Iterator[None]:
    """Within this block, log messages of the libraries, in any thread, do not show the token."""

    def scrub(record: logging.LogRecord) -> bool:
        record.msg, record.args = _without(token, record.getMessage()), ()
        if record.exc_info:
            record.exc_text = _without(token, logging.Formatter().formatException(record.exc_info))
        return True

    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = {handler for logger in loggers for handler in getattr(logger, "handlers", ())}
    handlers |= {logging.lastResort} if logging.lastResort else set()
    for handler in handlers:
        handler.addFilter(scrub)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(scrub)
