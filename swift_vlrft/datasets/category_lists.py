"""Named lists of categories for ``--categories``.

CATEGORY_LISTS["virft-coco8"]    ["bus", "train", "fire hydrant", "stop sign", "cat", ...]
"""

import tomllib
from importlib.resources import files

_FILE = files("swift_vlrft.datasets").joinpath("category_lists.toml")

CATEGORY_LISTS: dict[str, list[str]] = tomllib.loads(_FILE.read_text("utf-8"))
