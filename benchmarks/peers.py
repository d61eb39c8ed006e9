"""Rewards of other projects, taken from checkouts beside this one. Nothing of theirs is kept here.

A checkout's training script is not imported, since that would need its trainer: the functions
wanted are compiled from its source with the few modules that they use.
"""

import ast
import json
import os
import re
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

VISUAL_RFT = Path("src/virft/src/open_r1/grpo.py")
VISUAL_RFT_CLASSES = Path("src/virft/src/open_r1/grpo_classification.py")
VLM_R1 = Path("src/open-r1-multimodal/src/open_r1/grpo_jsonl.py")


def find(folder: Path, file: Path) -> Path | None:
    """The checkout in ``folder`` (or ``folder`` itself) that holds ``file``."""
    candidates = [folder, *sorted(p for p in folder.iterdir() if p.is_dir())]
    return next((c for c in candidates if (c / file).is_file()), None)


def functions(path: Path, names: list[str], given: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """The functions ``names`` of the script at ``path``, with the names they use taken from
    ``given``.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    there = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    missing = set(names) - there.keys()
    if missing:
        raise ValueError(f"{path} has no function {sorted(missing)}; is it another version?")
    scope: dict[str, Any] = {"json": json, "re": re, "os": os, "datetime": datetime, **given}
    exec(compile(ast.Module([there[name] for name in names], []), str(path), "exec"), scope)
    return {name: scope[name] for name in names}


def visual_rft(folder: Path, math: ModuleType | None) -> dict[str, Callable[..., Any]] | None:
    """Visual-RFT's detection rewards; with ``math`` (math_verify) as released, without it its
    shortcut is off.
    """
    checkout = find(folder, VISUAL_RFT)
    if checkout is None:
        return None

    def off(*_: Any) -> Any:
        raise LookupError("math parser off")

    names = [
        "extract_bbox",
        "calculate_iou",
        "sort_and_calculate_iou",
        "remove_duplicates",
        "compute_reward_iou_v2",
        "compute_reward_confidence",
        "accuracy_reward_iou",
        "accuracy_reward_confidence",
    ]
    given = {"parse": math.parse if math else off, "verify": math.verify if math else off}
    return functions(checkout / VISUAL_RFT, names, given)


def visual_rft_classification(folder: Path) -> dict[str, Callable[..., Any]] | None:
    """Visual-RFT's rewards for class names, with math_verify as released."""
    checkout = find(folder, VISUAL_RFT_CLASSES)
    if checkout is None:
        return None
    from math_verify import parse, verify  # type: ignore[import-untyped]

    given = {"parse": parse, "verify": verify}
    return functions(checkout / VISUAL_RFT_CLASSES, ["accuracy_reward", "format_reward"], given)


def vlm_r1(folder: Path) -> dict[str, Callable[..., Any]] | None:
    """VLM-R1's ``odLength_reward`` with its own copy of pycocotools."""
    checkout = find(folder, VLM_R1)
    if checkout is None:
        return None
    sys.path.insert(0, str((checkout / VLM_R1).parent))
    try:
        from utils.pycocotools.coco import COCO  # type: ignore[import-not-found]
        from utils.pycocotools.cocoeval import COCOeval  # type: ignore[import-not-found]
    except ImportError:  # its copy needs compiled masks: the released package has the same API
        from pycocotools.coco import COCO  # type: ignore[import-untyped]
        from pycocotools.cocoeval import COCOeval  # type: ignore[import-untyped]
    finally:
        sys.path.pop(0)
    names = ["calculate_map", "map_reward", "odLength_reward"]
    return functions(checkout / VLM_R1, names, {"COCO": COCO, "COCOeval": COCOeval})
