"""Sets in an object store: ``s3://bucket/prefix``, ``gs://...``, ``az://...``, ``memory://...``.

S3 is read by Arrow itself, which pyarrow brings; anything else by fsspec, where the package for its
protocol is installed. Credentials, region and endpoint come from where the store's own tools look
(AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_ENDPOINT_URL, ...), never from the address: an address is
logged.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.source import DataError

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPTS = 5
"""Of a request that fails, by the store's library, and then of what was asked for as a whole."""

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}(?=[^/])")


class RemotePath(PosixPath):
    """An address in a store, as a path: ``/``, ``name`` and ``parents`` work as on a disk."""

    def __str__(self) -> str:
        return _URL.sub(r"\1://", super().__str__(), count=1)

    def __fspath__(self) -> str:
        return str(self)

    @property
    def protocol(self) -> str:
        return self.parts[0].rstrip(":")

    def exists(self, **_: Any) -> bool:
        from pyarrow.fs import FileType

        return bool(self._info().type != FileType.NotFound)

    def is_file(self, **_: Any) -> bool:
        return bool(self._info().is_file)

    def is_dir(self, **_: Any) -> bool:
        """By its name, for a store has no folders; Spark's are named set.parquet, too."""
        return self.suffix.lower() != ".parquet" or not _is_file(self)

    def _info(self) -> Any:
        return self._ask(lambda store, name: store.get_file_info(name))

    def below(self) -> list[RemotePath]:
        """The files below it, in order, without hidden ones."""
        from pyarrow.fs import FileSelector

        def listed(store: Any, name: str) -> list[str]:
            found = store.get_file_info(FileSelector(name, recursive=True, allow_not_found=True))
            return sorted(f.path for f in found if f.is_file)

        names = self._ask(listed)
        files = [RemotePath(f"{self.protocol}://{name.lstrip('/')}") for name in names]
        here = len(self.parts)
        return [f for f in files if not any(p.startswith((".", "__")) for p in f.parts[here:])]

    def open_input(self) -> Any:
        """A file for Arrow to read; OSError where the store does not give it."""
        store, name = _store(self.protocol)
        return store.open_input_file(name(self))

    def _ask(self, question: Any) -> Any:
        store, name = _store(self.protocol)
        try:
            return question(store, name(self))
        except OSError as error:
            raise DataError(
                f"{self} cannot be read: {brief(error)}. Address, region, endpoint and credentials "
                "are those of the store's own tools (for S3: AWS_ENDPOINT_URL, AWS_REGION, "
                "AWS_ACCESS_KEY_ID, AWS_PROFILE)"
            ) from error


@lru_cache
def _is_file(path: RemotePath) -> bool:
    return path.is_file()  # asked once: a set's path is looked at for every row


def set_path(path: str | os.PathLike[str]) -> Path:
    """The path of a set on a disk or in a store; DataError for an address with a password in it."""
    text = str(path)
    if not (match := _URL.match(text)) or os.path.exists(text):
        return Path(path)
    _refuse_credentials(match[1], text[match.end() :])
    return path if isinstance(path, RemotePath) else RemotePath(text)


def _refuse_credentials(protocol: str, rest: str) -> None:
    if "@" in rest.partition("/")[0] or "?" in rest:
        raise DataError(
            f"{protocol}://...: an address is logged, so it takes neither credentials nor options; "
            "the environment and the store's own configuration do"
        )


def remote_parts(text: str) -> tuple[RemotePath, list[str]] | None:
    """Address and subsets of a ``--dataset``, without its count; None for what is no address.

    ms-swift parts a name at its first colon: of ``s3://bucket/set:pixels`` it takes s3 for the set.
    """
    match = _URL.match(text)
    if not match or os.path.exists(text):
        return None
    _refuse_credentials(match[1], text[match.end() :])
    address, _, subsets = text[match.end() :].partition(":")
    path = set_path(match[0] + address)
    assert isinstance(path, RemotePath)
    return path, [name.strip() for name in subsets.split("/") if name.strip()]


def brief(error: BaseException) -> str:
    """The first line of a store's error; a signed address in it would be a credential."""
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return re.sub(r"\?[^\s'\"]*", "?...", line)[:300]


def _store(protocol: str) -> tuple[Any, Any]:
    """A store, and what makes the name that it takes for a path."""
    # A forked process opens its own: the parent's connections and threads are not in it.
    return _store_of(protocol, os.getpid())


@lru_cache
def _store_of(protocol: str, process: int) -> tuple[Any, Any]:
    import pyarrow.fs as arrow

    if protocol in ("s3", "s3a"):
        # Arrow does not read these two: without them it would ask Amazon for somebody else's set.
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        store = arrow.S3FileSystem(
            endpoint_override=endpoint or None,
            region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None,
            retry_strategy=arrow.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            connect_timeout=20,
            request_timeout=60,
        )
        return store, lambda path: "/".join(path.parts[1:])
    import fsspec

    try:
        found = fsspec.filesystem(protocol)
    except (ImportError, ValueError) as error:
        raise DataError(f"{protocol}://: {error}") from error
    return arrow.PyFileSystem(arrow.FSSpecHandler(found)), lambda p: found._strip_protocol(str(p))


def opened(file: Path) -> pa.NativeFile | str:
    """What Arrow's readers take for a file."""
    return file.open_input() if isinstance(file, RemotePath) else str(file)
