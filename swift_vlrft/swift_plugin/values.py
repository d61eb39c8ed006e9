"""Read what the installed packages take for a flag or variable: names, bounds and kinds.

Names come from registries; bounds and variables from the text of the code that refuses or reads
them (`if not 0 < self.top_p <= 1: raise`, `get_env_args('max_pixels', int, ...)`), so that vLLM,
which takes seconds to import, need not be.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from swift_vlrft.recipe.bounds import Bounds

COUNTS = (
    *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"),
    *("steps_per_generation", "generation_batch_size", "num_generations", "num_iterations"),
    *("max_completion_length", "max_length", "max_pixels", "lora_rank", "sequence_parallel_size"),
    *("move_model_batches", "vllm_tensor_parallel_size", "vllm_max_model_len", "logging_steps"),
    *("vllm_max_num_seqs", "micro_batch_size", "global_batch_size", "tensor_model_parallel_size"),
    *("pipeline_model_parallel_size", "context_parallel_size", "dataset_num_proc", "num_labels"),
    *("MAX_PIXELS", "IMAGE_MAX_TOKEN_NUM", "VIDEO_MAX_PIXELS", "VIDEO_MAX_TOKEN_NUM", "NFRAMES"),
    *("VIDEO_TOTAL_PIXELS", "IMAGE_FACTOR", "FRAME_FACTOR", "FPS_MAX_FRAMES", "FPS_MIN_FRAMES"),
    *("SPATIAL_MERGE_SIZE", "MAX_NUM", "INPUT_SIZE", "MAX_SLICE_NUMS", "NPROC_PER_NODE", "NNODES"),
)
BY_MEANING = {
    **dict.fromkeys(COUNTS, "[1, inf)"),
    **dict.fromkeys(("eval_steps", "FPS"), "(0, inf)"),
    **dict.fromkeys(("lora_dropout", "split_dataset_ratio", "top_entropy_quantile"), "[0, 1]"),
    **dict.fromkeys(("beta", "learning_rate", "sdar_loss_coef", "warmup_ratio"), "[0, inf)"),
    **dict.fromkeys(("weight_decay", "lora_alpha", "max_grad_norm", "epsilon"), "[0, inf)"),
    **dict.fromkeys(("MIN_PIXELS", "IMAGE_MIN_TOKEN_NUM", "NODE_RANK"), "[0, inf)"),
    **{"sleep_level": "[0, 2]", "MASTER_PORT": "[1, 65535]"},
}
"""What no line of the packages refuses, as it fails later or trains nothing: they are met, too."""
OF_TORCHRUN = ("NPROC_PER_NODE", "MASTER_PORT")
"""Handed on to it (swift/cli/main.py: get_torchrun_args)."""
Kind = Literal["int", "float", "bool"]
READERS: dict[str, Kind] = {"int": "int", "float": "float", "bool": "bool", "strtobool": "bool"}
REFUSED = re.compile(r"self\.(\w+) (<=?|>=?) (-?[\d.]+)")
TAKEN = re.compile(r"not (-?[\d.]+) (<=?) self\.(\w+) (<=?) (-?[\d.]+)")
OF_LOSSES = {"grpo": "grpo_trainer.py", "dpo": "dpo_trainer.py"}


def names() -> dict[str, list[str]]:
    """Return what a text flag may name beside files and hub ids, by flag or with --rlhf_type."""
    from swift.agent_template import agent_template_map
    from swift.callbacks import callbacks_map
    from swift.loss import loss_map
    from swift.model import MODEL_MAPPING
    from swift.optimizers import optimizers_map
    from swift.template import TEMPLATE_MAPPING
    from transformers import AttentionInterface
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
    from transformers.trainer_utils import SchedulerType

    config = [path.stem for path in (_root("swift") / "config").glob("*.json")]
    metas = [meta for meta in MODEL_MAPPING.values() if meta.model_type]
    seeing = {of for meta in metas if meta.is_multimodal for of in _templates(meta)}
    reading = {of for meta in metas if not meta.is_multimodal for of in _templates(meta)}
    attention = ["flash_attn", "eager", *AttentionInterface._global_mapping]
    known = {
        "NPROC_PER_NODE": ["auto", "cpu", "gpu"],  # torch.distributed.run
        "agent_template": agent_template_map,
        "attn_impl": [name for name in attention if "|" not in name],
        "callbacks": callbacks_map,
        "deepspeed": [name for name in config if name.startswith("zero")],
        "fsdp": [name for name in config if name.startswith("fsdp")],
        "loss_type": loss_map,
        "lr_scheduler_type": [kind.value for kind in SchedulerType],
        "model_type": [meta.model_type for meta in metas],
        "model_type of text": [meta.model_type for meta in metas if not meta.is_multimodal],
        "optimizer": optimizers_map,
        "report_to": ["none", "all", *INTEGRATION_TO_CALLBACK],
        "template": TEMPLATE_MAPPING,
        "template of text": reading - seeing,
    }
    known |= {f"loss_type {kind}": _losses(file) for kind, file in OF_LOSSES.items()}
    return {name: sorted(map(str, values)) for name, values in sorted(known.items())}


def _templates(meta: object) -> Iterator[str]:
    yield from filter(None, (meta.template, *(group.template for group in meta.model_groups)))  # type: ignore[attr-defined]


def _losses(file: str) -> set[str]:
    """What a trainer compares its loss type with."""
    tree = ast.parse((_root("swift") / "rlhf_trainers" / file).read_text())
    lists = {n.targets[0].id: n.value for n in tree.body if isinstance(n, ast.Assign)
             and isinstance(n.targets[0], ast.Name)}  # fmt: skip
    kinds = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("loss_type"):
            (other,) = node.comparators
            other = lists.get(other.id, other) if isinstance(other, ast.Name) else other
            kinds |= {c.value for c in ast.walk(other) if isinstance(c, ast.Constant)}
    return {name for name in kinds if isinstance(name, str)} - {"kto_pair"}


def bounds(flags: Iterable[str]) -> dict[str, str]:
    """Return the interval of each flag's or variable's values."""
    intervals = {name: Bounds.of(text) for name, text in BY_MEANING.items()}
    for tree in _trees("swift", "arguments", "trainers", "rlhf_trainers"):
        _meet(intervals, _refused(tree))
    for file in ("transformers/training_args.py", "vllm/sampling_params.py"):
        if text := _text(file):
            _meet(intervals, _refused(ast.parse(text)))
    for tree in _trees("vllm", "config"):
        _meet(intervals, ((f"vllm_{name}", interval) for name, interval in _declared(tree)))
    known = {*flags, *BY_MEANING}
    return {name: str(interval) for name, interval in sorted(intervals.items()) if name in known}


def _meet(intervals: dict[str, Bounds], more: Iterable[tuple[str, Bounds]]) -> None:
    for name, interval in more:
        intervals[name] = intervals.get(name, Bounds()).met(interval)


def _refused(tree: ast.AST) -> Iterator[tuple[str, Bounds]]:
    """From `if self.NAME < 0: raise` and `if not 0 <= self.NAME <= 1: raise`, as far as they stand
    under no other condition than `if self.NAME:`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield from _in_body(node.body)


def _in_body(body: list[ast.stmt], only: str = "") -> Iterator[tuple[str, Bounds]]:
    for node in body:
        if not isinstance(node, ast.If):
            continue
        text = re.sub(r"^self\.\w+ is not None and ", "", ast.unparse(node.test))
        if match := re.fullmatch(r"self\.(\w+)", text):
            yield from _in_body(node.body, match[1])
        elif not any(isinstance(inner, ast.Raise) for inner in node.body):
            continue
        elif match := REFUSED.fullmatch(text):
            name, sign, number = match.groups()
            yield from [(name, Bounds.beyond(sign, float(number)))] * (only in ("", name))
        elif match := TAKEN.fullmatch(text):
            low, first, name, second, high = match.groups()
            yield name, Bounds(float(low), float(high), first == "<=", second == "<=")


def _declared(tree: ast.AST) -> Iterator[tuple[str, Bounds]]:
    """From `NAME: float = Field(default=0.9, gt=0, le=1)`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Call):
            continue
        limits = {
            word.arg: float(ast.literal_eval(word.value))
            for word in node.value.keywords
            if word.arg in ("gt", "ge", "lt", "le")
        }
        if limits:
            low = limits.get("gt", limits.get("ge", -math.inf))
            high = limits.get("lt", limits.get("le", math.inf))
            yield ast.unparse(node.target), Bounds(low, high, "ge" in limits, "le" in limits)


def variables() -> dict[str, Kind]:
    """Return the kind of each environment variable that ms-swift reads as a number or a switch."""
    kinds: dict[str, set[Kind]] = {name: {"int"} for name in OF_TORCHRUN}
    for tree in _trees("swift", holding=r"get_env_args|\b(?:getenv|environ)\b"):
        for node in ast.walk(tree):
            for name, kind in _read(node):
                kinds.setdefault(name.upper(), set()).add(kind)
    return {name: max(of) for name, of in sorted(kinds.items()) if len(of) == 1}


def _read(node: ast.AST) -> Iterator[tuple[str, Kind]]:
    if isinstance(node, ast.For) and isinstance(node.iter, ast.List):  # models/qwen.py
        listed = [n.value for n in node.iter.elts if isinstance(n, ast.Constant)]
        if f"get_env_args({ast.unparse(node.target)}, " in ast.unparse(node):
            yield from ((str(name), "float" if name == "fps" else "int") for name in listed)
    if not isinstance(node, ast.Call) or not node.args:
        return
    called, first = ast.unparse(node.func), node.args[0]
    if called == "get_env_args" and isinstance(first, ast.Constant):
        kind = READERS.get(ast.unparse(node.args[1]))
        yield from [(str(first.value), kind)] if kind else []
    elif called in READERS and called != "bool" and isinstance(first, ast.Call):
        name = first.args[0] if first.args else None
        reads = re.fullmatch(r"os\.(getenv|environ\.get)", ast.unparse(first.func))
        if reads and isinstance(name, ast.Constant):
            yield str(name.value), READERS[called]


def _root(package: str) -> Path:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else Path("/nowhere")


def _text(file: str) -> str:
    """Empty if its package is not installed."""
    package, _, name = file.partition("/")
    path = _root(package) / name
    return path.read_text() if path.is_file() else ""


def _trees(package: str, *folders: str, holding: str = "") -> Iterator[ast.AST]:
    """Of the files in which a pattern is found: to parse all of ms-swift takes seconds."""
    root = _root(package)
    for folder in folders or ("",):
        for path in sorted((root / folder).rglob("*.py")):
            # What `swift rollout` alone refuses holds for no other command.
            if "ui" not in path.relative_to(root).parts and path.name != "deploy_args.py":
                text = path.read_text()
                if re.search(holding, text):
                    yield ast.parse(text)
