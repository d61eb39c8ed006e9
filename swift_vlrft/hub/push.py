"""Publish files on a hub, through the hub's own library.

    upload({"README.md": b"...", "data/train-0.parquet": Path(...)}, "hf", "me/coco8", "dataset")
    "https://huggingface.co/datasets/me/coco8"

Only what is named goes up. A server may repeat in its error what it was sent, so the token is taken
out of what the library raises, and the library logs nothing.
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

from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.writing import DiskFull, space_named, write_atomically

TOKENS = {"hf": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}
SHORT = {"ms": "modelscope"}

Files = Mapping[str, Path | bytes]
"""What goes up: its path in the repository, and where it lies, or what it holds."""


class HubError(ValueError):
    """The hub refused the files; the message is its answer, without the token."""

    exit_code = 1


def check_target(hub: str, repo: str) -> str:
    """Return the hub's name in full; ValueError if hub or repository cannot be."""
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    hub = SHORT.get(hub, hub)
    if hub not in TOKENS:
        raise DataError(f"--hub {hub}: unknown; known: {', '.join((*TOKENS, *SHORT))}")
    validate_repo_id(repo)
    if "/" not in repo:
        raise DataError(f"--repo {repo}: expected ORG/NAME")
    return hub


def upload(
    files: Files,
    hub: str,
    repo: str,
    kind: Literal["dataset", "model"],
    *,
    licence: str | None = None,
    private: bool = False,
) -> str:
    """Upload the files into a repository, made if it is missing; return its page.

    DataError if the token is missing; HubError where the hub refuses or is out of reach.
    """
    token = os.environ.get(TOKENS[hub], "").strip()
    if not token:
        raise DataError(f"{TOKENS[hub]} is not set; export a token that may write")
    options, more = dict[str, Any](private=private), dict[str, Any]()
    api: Any
    if hub == "hf":
        from huggingface_hub import HfApi

        api = HfApi(token=token)
    else:
        from modelscope.hub.api import HubApi

        # Left out, the library would state Apache-2.0 for what is not ours to license.
        options = {"visibility": "private" if private else "public", "license": licence or "other"}
        # The library's cache would lie in the folder, and outlive a deleted repository.
        api, more = HubApi(token=token), {"use_cache": False}
    try:
        # ModelScope's library reports on stdout, which is ours for the result.
        with staged(files) as folder, redirect_stdout(sys.stderr):
            logging.disable()
            api.create_repo(repo, repo_type=kind, exist_ok=True, **options)
            api.upload_folder(repo_id=repo, repo_type=kind, folder_path=folder, **more)
    except DiskFull:
        raise
    except Exception as error:  # each library has many kinds of its own
        text = f"{type(error).__name__}: {error}".replace(token, "[token]")
        raise HubError(f"{hub} refused {repo}: {text}") from None
    finally:
        logging.disable(logging.NOTSET)
    middle = {"dataset": "datasets/", "model": "models/" if hub == "modelscope" else ""}[kind]
    return f"{api.endpoint}/{middle}{repo}"


@contextmanager
def staged(files: Files) -> Iterator[Path]:
    """Yield a folder of links and small files, as the repository will be; the originals stay."""
    with TemporaryDirectory(prefix="vlrft-") as name:
        for path, content in files.items():
            target = Path(name, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                target.symlink_to(content.resolve())
            else:
                with space_named(target):
                    target.write_bytes(content)
        yield Path(name)


def write_card_only(files: Files, folder: Path) -> Path:
    """Write the card, to look at; DataError where a file of the repository is there already."""
    if there := [name for name in files if (folder / name).exists()]:
        raise DataError(f"{folder / there[0]} is there already; name a new folder for the card")
    card = files["README.md"]
    write_atomically(folder / "README.md", card if isinstance(card, bytes) else card.read_bytes())
    return folder / "README.md"
