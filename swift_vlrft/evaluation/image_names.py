"""Images of a set, looked up by the names that other files use.

ImageNames([("/set/a/1.png",), ("/set/b/1.png",)]).find(["/mnt/data/a/1.png"])   {"/set/a/1.png"}
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

from swift_vlrft.datasets.image import content_key
from swift_vlrft.datasets.splits import splits_in


class ImageNames:
    """The rows' images by every name: a partial or full path, an id, the content."""

    def __init__(
        self,
        rows: Sequence[tuple[str, ...]],
        contents: Callable[[int], Iterable[str]] = lambda n: (),
    ) -> None:
        """``rows``: the names of every row's image, the identifying one first; ``contents``: its
        keys by file content, called if names are not enough.
        """
        self.rows, self.contents = rows, contents
        self.images: dict[Sequence[str], set[str]] = {}
        """By exact name, and by the end of a path."""
        for row in rows:
            for name in row:
                for key in (name, *_ends(name)):
                    self.images.setdefault(key, set()).add(row[0])

    def find(self, names: Sequence[str]) -> set[str] | None:
        """The images that may be meant: empty if no row has one, None if ``names`` is empty."""
        if not names:
            return None
        sets = [self.images[name] for name in names if name in self.images]
        if sets:
            return set.intersection(*sets) or sets[0]
        for name in names:
            if images := self._by_path(name) or self._by_content(name):
                return images
        return set()

    def _by_path(self, name: str) -> set[str]:
        """Those that share the longest suffix (at least the file name) and the content."""
        near = next((self.images[end] for end in _ends(name) if end in self.images), set())
        split = _split_of(name)
        images = {p for p in near if split is None or _split_of(p) in (None, split)}
        if not images or (content := _content_of(name)) is None:
            return images
        return {image for image in images if _content_of(image) in (None, content)}

    def _by_content(self, name: str) -> set[str]:
        """Copies in a cache: by the file's content, or by a name that is its hash."""
        stem = _ends(name)[-1][0].partition(".")[0]
        keys = [stem[:16] if _HASH.fullmatch(stem) else None, _content_of(name)]
        return {image for key in keys if key for image in self._contents.get(key, ())}

    @cached_property
    def _contents(self) -> dict[str, set[str]]:
        images: dict[str, set[str]] = {}
        for n, row in enumerate(self.rows):
            for key in self.contents(n) if row else ():
                images.setdefault(key, set()).add(row[0])
        return images


_HASH = re.compile(r"[0-9a-f]{16,64}")
_SPLIT_ALONE = re.compile(r"(?:[a-z]*im(?:age|g)s?[-_.]?)?([a-z]+)[-_.]?\d*", re.IGNORECASE)


def _content_of(image: str) -> str | None:
    """The key of a file by its content; None if it is not an absolute path or does not exist."""
    if _HASH.fullmatch(image):
        return image[:16]
    file = Path(image)
    try:
        return content_key(file.read_bytes()) if file.is_absolute() and file.is_file() else None
    except (OSError, ValueError):
        return None


def _ends(name: str) -> list[tuple[str, ...]]:
    """A path and all its suffixes, the longest first."""
    path = posixpath.normpath(name.replace("\\", "/").partition("?")[0])
    parts = tuple(part for part in path.split("/") if part) or (name,)
    return [parts[n:] for n in range(len(parts))]


def _split_of(path: str) -> str | None:
    """The split named by the folder nearest to the file: val for data/images/val2017/1.jpg."""
    for part in reversed(_ends(path)[0][:-1]):
        # A split alone: test_project names none.
        if (alone := _SPLIT_ALONE.fullmatch(part)) and (found := splits_in(alone[1])):
            return found[0]
    return None
