"""Publish a Parquet folder on a hub, through the hub's own library.

    push_folder(Path("data/coco8"), "hf", "me/coco8")    "https://huggingface.co/datasets/me/coco8"

What goes up is README.md and data/*.parquet, nothing else that may lie there. The token is read
from the environment and handed to the library. A server may repeat in its error what it was sent,
so the token is taken out of what the library logs and raises.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from urllib.parse import quote

from swift_vlrft.datasets.source import DataError

TOKENS = {"hf": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}
PAGES = {"hf": "huggingface.co/settings/tokens", "modelscope": "modelscope.cn/my/access/token"}
FILES = ["README.md", "data/*.parquet"]


class HubError(ValueError):
    """The hub refused the folder; the message is its answer, without the token."""

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

    DataError if the folder is incomplete or the token is missing; HubError where the hub refuses
    or is out of reach.
    """
    if hub not in TOKENS:
        raise DataError(f"--hub {hub}: unknown; known: {', '.join(TOKENS)}")
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise DataError(f"--repo {repo}: expected ORG/NAME, for instance me/{folder.name}")
    licence = check_folder(folder)
    token = (os.environ if environ is None else environ).get(TOKENS[hub], "").strip()
    if not token:
        raise DataError(
            f"{TOKENS[hub]} is not set; get a token that may write at https://{PAGES[hub]} and "
            f"export it as {TOKENS[hub]}"
        )
    try:
        api, create, upload = _client(hub, token, private, licence)
        # ModelScope's library reports on stdout, which is ours for the result.
        with _logged_without(token), redirect_stdout(sys.stderr):
            api.create_repo(repo, repo_type="dataset", exist_ok=True, **create)
            api.upload_folder(
                repo_id=repo,
                repo_type="dataset",
                folder_path=folder,
                allow_patterns=FILES,
                commit_message="Upload with vlrft data push",
                **upload,
            )
    except Exception as error:  # each library has many kinds of its own
        text = _without(token, f"{type(error).__name__}: {error}")
        raise HubError(f"{hub} did not take {folder} as {repo}: {text}") from None
    return f"{api.endpoint}/datasets/{repo}"


def check_folder(folder: Path) -> str | None:
    """The licence in the card; DataError if a file is missing or a shard is broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import yaml
    from huggingface_hub import DatasetCard

    files = sorted((folder / "data").glob("*.parquet"))
    card = folder / "README.md"
    if not card.is_file() or not files:
        raise DataError(
            f"{folder} is not a finished Parquet folder (README.md and data/*.parquet); make one "
            f"with: vlrft data convert {folder} NEW_FOLDER"
        )
    for file in files:
        try:
            pq.read_metadata(file)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file} cannot be read as Parquet ({error}); make it again") from error
    try:
        licence = DatasetCard.load(card, ignore_metadata_errors=True).data.license
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"{card}: the YAML at its head is broken: {error}") from error
    return None if licence is None else str(licence)


def _client(
    hub: str, token: str, private: bool, licence: str | None
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The library's client, and what its create_repo and upload_folder take besides."""
    if hub == "hf":
        from huggingface_hub import HfApi

        return HfApi(token=token), {"private": private}, {}
    from modelscope.hub.api import HubApi

    # Left out, the library would state Apache-2.0 for images that are not ours to license.
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
