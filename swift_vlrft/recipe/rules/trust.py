"""What a model's folder would run, or unpickle, where it is loaded: for folders from strangers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from swift_vlrft.files.jsonl import LineError, read_json
from swift_vlrft.recipe.rules.finding import Finding, note
from swift_vlrft.recipe.rules.model import family
from swift_vlrft.recipe.run import Run

OURS = "chatglm4v"
"""Its model is of this package, whatever code lies beside the weights."""


def code_and_pickles(run: Run) -> Iterator[Finding]:
    for flag in ("model", "adapters", "ref_model", "reward_model"):
        value = run.read(flag)
        for name in value if isinstance(value, tuple) else (value,):
            name = str(name or "")
            folder = run.recipe.at(name) if name else None
            if folder is None or not folder.is_dir():
                continue
            known = family(run)
            if (code := own_code(folder)) and (known is None or known.name != OURS):
                yield note(
                    run,
                    flag,
                    "trust",
                    f"--{flag} {name}: it brings code of its own ({', '.join(code)}), which "
                    "ms-swift runs where it loads it; read it first if you do not know its author",
                )
            if pickles := only_pickles(folder):
                yield note(
                    run,
                    flag,
                    "trust",
                    f"--{flag} {name}: its weights are pickles ({', '.join(pickles)}), which can "
                    "hold code; transformers and vLLM load tensors alone from them and refuse the "
                    "rest. Take a version with safetensors, or write one with save_pretrained",
                )


def own_code(folder: Path) -> list[str]:
    """The files of Python that auto_map names in the folder's JSON, and those of other
    repositories; the first three.
    """
    found: dict[str, None] = {}
    for name in ("config.json", "tokenizer_config.json", "processor_config.json"):
        try:
            settings = read_json(folder / name)
            named = settings.get("auto_map", {}).values()
        except (OSError, LineError, AttributeError):
            continue
        for value in named:
            values = value if isinstance(value, list) else [value]
            found |= {f"{v.rpartition('.')[0]}.py": None for v in values if isinstance(v, str)}
    return list(found)[:3]


def only_pickles(folder: Path) -> list[str]:
    """The files of weights that are pickles, where there are no safetensors; the first three."""
    if any(folder.glob("*.safetensors")):
        return []
    weights = ("pytorch_model*.bin", "adapter_model*.bin", "model*.bin", "consolidated*.pth")
    return sorted(file.name for one in weights for file in folder.glob(one))[:3]
