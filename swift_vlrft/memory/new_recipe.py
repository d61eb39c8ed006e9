"""A new recipe for a model, a task and GPUs.

new_recipe("Qwen/Qwen2.5-VL-3B-Instruct", "detection", 8, "/data/coins")
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.geometry.box_format import SUBSETS
from swift_vlrft.memory.append import ASKED_OF_A_NODE
from swift_vlrft.memory.models import read_model

TEMPLATE = Path(__file__).with_name("new_recipe.sh.jinja")

TASKS = {
    "detection": ("vlrft_detection_iou vlrft_detection_format", 1024),
    "grounding": ("vlrft_grounding_iou vlrft_format", 512),
    "classification": ("vlrft_classification vlrft_format", 512),
    "pointing": ("vlrft_pointing vlrft_format", 512),
    "counting": ("vlrft_counting vlrft_format", 512),
    "choice": ("vlrft_choice vlrft_format", 512),
    "yes_no": ("vlrft_yes_no vlrft_format", 512),
    "number": ("vlrft_number vlrft_format", 512),
    "math": ("vlrft_math vlrft_boxed_format", 1024),
    "ocr": ("vlrft_ocr vlrft_format", 1024),
    "list": ("vlrft_list vlrft_format", 512),
    "ordering": ("vlrft_ordering vlrft_format", 512),
}
"""Rewards, and tokens for a completion."""


def new_recipe(
    model: str,
    task: str,
    processes: int,
    dataset: str | None,
    *,
    nodes: int = 1,
    changes: Mapping[str, str] | None = None,
) -> str:
    """A recipe to start from: full tuning, vLLM beside the trainer, ZeRO-3 on several GPUs.

    ``processes`` is the number of GPUs of one node, of which there are ``nodes``; ``changes`` are
    other flags, and variables by names in capitals.
    """
    from jinja2 import Environment

    if task not in TASKS:
        raise ValueError(f"--task {task}: known tasks are {', '.join(TASKS)}")
    rewards, completion = TASKS[task]
    family, changes = read_model(model).family, changes or {}
    data = dataset or "DATASET"
    native = family.box_format if family and task in BOX_TASKS else None
    if native not in (None, "norm1000") and "#" not in data:
        named = data.endswith(tuple(f":{name}" for name in SUBSETS))
        data += "" if named else f":{native}"
    several, images = processes * nodes > 1, family.images if family else None
    flags = {
        **{"rlhf_type": "grpo", "model": model, "external_plugins": ""},
        **{"dataset": data, "reward_funcs": rewards, "tuner_type": "full"},
        "torch_dtype": "bfloat16",
        # One GPU too: DeepSpeed keeps 32-bit copies of what trains in bfloat16.
        **(
            {"deepspeed": "zero3", "move_model_batches": "16"}
            if several
            else {"deepspeed": "zero2"}
        ),
        **{"use_vllm": "true", "vllm_mode": "colocate", "vllm_gpu_memory_utilization": "0.5"},
        **{"vllm_max_model_len": "4096", "sleep_level": "1"},
        **{"per_device_train_batch_size": "2", "gradient_accumulation_steps": "4"},
        **{"num_generations": "8", "num_generations_eval": "1", "max_length": "2048"},
        **{"truncation_strategy": "delete", "max_completion_length": str(completion)},
        **{"beta": "0.04", "learning_rate": "1e-6", "save_steps": "100"},
        **{"log_completions": "true", "log_rollout_offpolicy_metrics": "true"},
        **{"callbacks": "graceful_exit", "output_dir": f"output/{task}"},
    }
    variables = {"NNODES": str(nodes)} if nodes > 1 else {}
    variables |= {"NPROC_PER_NODE": str(processes)} if several else {}
    if images is None or (images.adjustable and images.from_environment):
        variables["MAX_PIXELS"] = "602112"
    elif images.adjustable:
        flags["max_pixels"] = "602112"
    flags |= {name: value for name, value in changes.items() if not name.isupper()}
    variables |= {name: value for name, value in changes.items() if name.isupper()}
    words = {name: shlex.quote(value) for name, value in flags.items()}
    words |= {"external_plugins": '"$(vlrft plugin)"', "reward_funcs": rewards}
    one_node = f"{processes} GPU{'s' * (processes > 1)}"
    jinja = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return jinja.from_string(TEMPLATE.read_text()).render(
        **{"task": task, "model": model, "flags": words, "processes": processes, "nodes": nodes},
        where=one_node if nodes == 1 else f"{nodes} nodes of {processes} GPUs",
        variables={name: shlex.quote(value) for name, value in variables.items()},
        required=ASKED_OF_A_NODE if nodes > 1 else {},
    )
