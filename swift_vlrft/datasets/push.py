"""Publish a Parquet folder on a hub, through the hub's own library.

    push_folder(Path("data/coco8"), "hf", "me/coco8")    "https://huggingface.co/datasets/me/coco8"

What goes up is README.md and data/*.parquet, nothing else that may lie there. The token is read
from the environment and handed to the library; whatever the library logs or raises passes through
a filter first, for a server may repeat in its error what it was sent.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from urllib.parse import quote

from swift_vlrft.datasets.source import DataError

TOKENS = {"hf": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}
PAGES = {"hf": "huggingface.co/settings/tokens", "modelscope": "modelscope.cn/my/access/token"}
FILES = ["README.md", "data/*.parquet"]


class HubError(OSError):
    """The hub did not take the folder: what it said, without the token."""

    exit_code = 1


def push_folder(
    folder: Path,
    hub: str,
    repo: str,
    *,
    private: bool = False,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Create the repository where it is not there yet, upload the folder, return its page.

    DataError where the folder is not whole or the token is missing; HubError where the hub refuses
    or is out of reach.
    """
    if hub not in TOKENS:
        raise DataError(f"--hub {hub}: unknown; known: {', '.join(TOKENS)}")
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise DataError(f"--repo {repo}: expected ORG/NAME, for instance me/{folder.name}")
    card = check_folder(folder)
    token = (os.environ if environ is None else environ).get(TOKENS[hub], "").strip()
    if not token:
        raise DataError(
            f"{TOKENS[hub]} is not set; get a token that may write at https://{PAGES[hub]} and "
            f"export it as {TOKENS[hub]}"
        )
    # ModelScope's library reports on stdout, which is ours for the result.
    with _without(token), redirect_stdout(sys.stderr):
        try:
            return _UPLOADS[hub](folder, repo, private, token, card)
        except Exception as error:  # each library has many kinds of its own
            said = _scrubbed(f"{type(error).__name__}: {error}", token)
    raise HubError(f"{hub} did not take {folder} as {repo}: {said}")


def check_folder(folder: Path) -> dict[str, Any]:
    """The card's YAML; DataError where a file is missing or a shard is broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import yaml

    files = sorted((folder / "data").glob("*.parquet"))
    if not (folder / "README.md").is_file() or not files:
        raise DataError(
            f"{folder} is not a finished Parquet folder (README.md and data/*.parquet); make one "
            f"with: vlrft data convert {folder} NEW_FOLDER"
        )
    for file in files:
        try:
            pq.read_metadata(file)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file} cannot be read as Parquet ({error}); make it again") from error
    text = (folder / "README.md").read_text(encoding="utf-8")
    try:
        card = yaml.safe_load(text.split("---\n")[1]) if text.startswith("---\n") else {}
    except (yaml.YAMLError, IndexError) as error:
        raise DataError(
            f"{folder / 'README.md'}: the YAML at its head is broken: {error}"
        ) from error
    return card if isinstance(card, dict) else {}


def _to_hugging_face(
    folder: Path, repo: str, private: bool, token: str, card: dict[str, Any]
) -> str:
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
    api.upload_folder(
        repo_id=repo,
        repo_type="dataset",
        folder_path=folder,
        allow_patterns=FILES,
        commit_message="Upload with vlrft data push",
    )
    return f"{api.endpoint}/datasets/{repo}"


def _to_modelscope(folder: Path, repo: str, private: bool, token: str, card: dict[str, Any]) -> str:
    from modelscope.hub.api import HubApi

    api = HubApi(token=token)
    api.create_repo(
        repo,
        repo_type="dataset",
        visibility="private" if private else "public",
        # Left out, the library would state Apache-2.0 for pictures that are not ours to license.
        license=str(card.get("license") or "other"),
        exist_ok=True,
    )
    # Without the library's cache, which would lie in the folder and outlive a deleted repository;
    # what the hub holds already is not sent again either way.
    api.upload_folder(
        repo_id=repo,
        repo_type="dataset",
        folder_path=folder,
        allow_patterns=FILES,
        commit_message="Upload with vlrft data push",
        use_cache=False,
    )
    return f"{api.endpoint}/datasets/{repo}"


_UPLOADS = {"hf": _to_hugging_face, "modelscope": _to_modelscope}


def _scrubbed(text: str, token: str) -> str:
    for form in (token, quote(token, safe=""), repr(token)[1:-1]):
        text = text.replace(form, "[token]")
    return text


@contextmanager
def _without(token: str) -> Iterator[None]:
    """Every log record that is made meanwhile, of any library, in any thread, lacks the token."""
    usual = logging.getLogRecordFactory()

    def record(*args: Any, **keywords: Any) -> logging.LogRecord:
        made = usual(*args, **keywords)
        made.msg, made.args = _scrubbed(made.getMessage(), token), ()
        if made.exc_info and made.exc_info[0]:
            made.exc_text = _scrubbed("".join(traceback.format_exception(*made.exc_info)), token)
        return made

    logging.setLogRecordFactory(record)
    try:
        yield
    finally:
        logging.setLogRecordFactory(usual)
