"""A recipe's flags as the planner's Settings, by ms-swift's own defaults.

    settings = settings_of(read_recipe("recipes/demo_cpu.sh"), parse_gpus("4x80"))
    settings.assumptions     everything that decides the verdict and that the recipe does not say

Defaults: swift/arguments, swift/trainers/arguments.py and swift/rlhf_trainers/args_mixin.py of 4.6.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft import shared_prefix_settings as shared_prefix
from swift_vlrft.coordinates import FAMILIES, pixel_limits, resized_size
from swift_vlrft.memory.images import Longest
from swift_vlrft.memory.models import Model, read_model
from swift_vlrft.memory.settings import SHARING, Gpus, Settings

if TYPE_CHECKING:
    from swift_vlrft.recipe import Recipe

PROMPT_TEXT = 256
"""Text tokens of a prompt beside its images, assumed where no data set is given: the detection
prompts of this package have 120 to 200."""

OPTIMIZERS = {
    "adamw_8bit": "adamw_8bit",
    "adamw_bnb_8bit": "adamw_8bit",
    "paged_adamw_8bit": "adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "adamw_torch": "adamw_foreach",
}


def settings_of(
    recipe: Recipe, gpus: Gpus, *, nodes: int = 1, longest: Longest | None = None
) -> Settings:
    """ValueError, in one line, where a flag or its absence makes a plan impossible."""
    notes: list[str] = []
    if recipe.get("rlhf_type") not in ("grpo", None) or recipe.command[-1] != "rlhf":
        raise ValueError(
            f"{recipe.path}: `{' '.join(recipe.command)}` with rlhf_type "
            f"{recipe.get('rlhf_type')}; the planner knows `swift rlhf --rlhf_type grpo`"
        )
    name = recipe.get("model")
    if name is None:
        raise ValueError(f"{recipe.path}: no --model, or one whose value only bash knows")
    model = read_model(name)
    if model.config.get("quantization_config"):
        notes.append("the checkpoint is quantized; its weights are planned in 16 bits")
    processes = _processes(recipe, gpus, nodes, notes)
    tuning = _tuning(recipe)
    sharding, cpu_states, cpu_parameters = _deepspeed(recipe, processes, notes)
    batch = _int(recipe, "per_device_train_batch_size", 1)
    accumulation = _int(recipe, "gradient_accumulation_steps", 0)
    if not accumulation:
        # swift/trainers/arguments.py: as many as make 16 rows a step.
        accumulation = max(1, -(-16 // (batch * processes)))
        notes.append(f"gradient_accumulation_steps is not set: {accumulation} (16 rows a step)")
    completion = _int(recipe, "max_completion_length", 512)
    steps = _int(recipe, "steps_per_generation", accumulation)
    if generation := _int(recipe, "generation_batch_size", 0):
        steps = max(1, generation // (batch * processes))
    max_length = _int(recipe, "max_length", 0) or None
    grids, prompt = _inputs(recipe, model, longest, notes)
    use_vllm = _true(recipe, "use_vllm", False)
    rollout = "transformers"
    if use_vllm:
        mode = recipe.get("vllm_mode")
        if mode not in ("colocate", "server"):
            raise ValueError(f"{recipe.path}: --use_vllm needs --vllm_mode colocate or server")
        rollout = "vllm_colocate" if mode == "colocate" else "vllm_server"
    tp = _int(recipe, "vllm_tensor_parallel_size", 1)
    if rollout == "vllm_colocate":
        _check_tp(model, tp, processes)
    beta = _float(recipe, "beta", 0.04)
    checkpoints = _true(recipe, "gradient_checkpointing", True)
    eval_batch = 0
    if _evaluates(recipe):
        eval_batch = _int(recipe, "per_device_eval_batch_size", 1)
    attention = {"flash_attn": "flash_attention_2", None: "sdpa"}.get(
        recipe.get("attn_impl"), recipe.get("attn_impl")
    )
    if recipe.get("attn_impl") is None:
        notes.append("attn_impl is not set: sdpa, PyTorch's own flash kernel")
    for flag in ("padding_free", "packing"):
        if _true(recipe, flag, False):
            notes.append(f"{flag} is planned as padded rows, which take more")
    if _int(recipe, "sequence_parallel_size", 1) > 1:
        notes.append("sequence_parallel_size is not divided by: the plan is an upper bound")
    shares, features = _shared_prefix(recipe, model, batch, notes)
    optimizer = OPTIMIZERS.get(recipe.get("optim") or "", "adamw")
    notes.append("longest row: every sequence of a batch is as long as the longest")
    frozen_vit = _true(recipe, "freeze_vit", True)
    frozen_aligner = _true(recipe, "freeze_aligner", True)
    iterations = _int(recipe, "num_iterations", 1)
    return Settings(
        model=model,
        gpu_bytes=gpus.bytes,
        processes=processes,
        nodes=nodes,
        tuning=tuning,
        lora_rank=_int(recipe, "lora_rank", 8),
        lora_dropout=_float(recipe, "lora_dropout", 0.05),
        train_llm=not _true(recipe, "freeze_llm", False),
        train_vit=model.sees and not frozen_vit,
        train_aligner=model.sees and not frozen_aligner,
        sharding=sharding,
        cpu_states=cpu_states,
        cpu_parameters=cpu_parameters,
        rollout=rollout,  # type: ignore[arg-type]
        vllm_tp=tp,
        vllm_utilization=_float(recipe, "vllm_gpu_memory_utilization", 0.9),
        vllm_max_length=_int(recipe, "vllm_max_model_len", 0) or None,
        vllm_max_sequences=_int(recipe, "vllm_max_num_seqs", 0) or None,
        vllm_eager=_true(recipe, "vllm_enforce_eager", False),
        # rlhf_args.py: _init_grpo sets it to 0 outside colocate.
        sleep_level=_int(recipe, "sleep_level", 0) if rollout == "vllm_colocate" else 0,
        offload_model=_true(recipe, "offload_model", False),
        offload_optimizer=_true(recipe, "offload_optimizer", False),
        move_model_batches=_int(recipe, "move_model_batches", 1),
        gather_for_generation=_true(recipe, "ds3_gather_for_generation", True),
        batch=batch,
        accumulation=accumulation,
        generations=_int(recipe, "num_generations", 8),
        rollout_batch=batch * steps,
        eval_batch=eval_batch,
        prompt=prompt,
        completion=completion,
        max_length=max_length,
        grids=grids,
        checkpoint_llm=checkpoints,
        checkpoint_vit=_true(recipe, "vit_gradient_checkpointing", checkpoints),
        attention=str(attention),
        # rlhf_args.py: a reference model for full tuning with a KL term; LoRA switches itself off.
        reference=beta != 0,
        # grpo_trainer.py: old_policy
        old_logps=iterations > 1 or accumulation % steps != 0,
        dtype=recipe.get("torch_dtype") or "bfloat16",
        optimizer=optimizer,  # type: ignore[arg-type]
        chunked_loss=_true(recipe, "use_liger_kernel", False),
        shared_prefix=shares and bool(grids),
        feature_cache=features,
        assumptions=tuple(notes),
    )


def _shared_prefix(recipe: Recipe, model: Model, batch: int, notes: list[str]) -> tuple[bool, int]:
    """Whether prompts are shared, and how many bytes of image features are kept."""
    if not shared_prefix.switched_on(recipe.environment):
        return False, 0
    why = None
    if model.type not in SHARING:
        why = f"the model type is {model.type}"
    elif recipe.get("fsdp"):
        why = "--fsdp"
    elif _int(recipe, "sequence_parallel_size", 1) > 1:
        why = "--sequence_parallel_size"
    for flag in ("padding_free", "use_liger_kernel"):
        if _true(recipe, flag, False):
            why = f"--{flag}"
    if why is None and batch == 1:
        why = "a micro-batch has one row"
    if why:
        notes.append(f"VLRFT_SHARED_PREFIX changes nothing here: {why}")
        return False, 0
    notes.append("VLRFT_SHARED_PREFIX: each prompt of a micro-batch is planned once")
    return True, shared_prefix.cache_bytes(recipe.environment)


def _tuning(recipe: Recipe) -> Any:
    value = recipe.get("tuner_type") or recipe.get("train_type") or "lora"
    if value not in ("lora", "full"):
        raise ValueError(f"--tuner_type {value}: the planner knows lora and full")
    if value == "lora" and recipe.get("quant_bits") == "4":
        return "qlora"
    return value


def _processes(recipe: Recipe, gpus: Gpus, nodes: int, notes: list[str]) -> int:
    said = recipe.environment.get("NPROC_PER_NODE", "").strip()
    visible = recipe.environment.get("CUDA_VISIBLE_DEVICES", "").strip()
    if said:
        if not said.isdigit() or int(said) < 1:
            raise ValueError(f"{recipe.path}: NPROC_PER_NODE={said} is no count of processes")
        if int(said) > gpus.count:
            raise ValueError(
                f"{recipe.path} starts {said} processes (NPROC_PER_NODE) and --gpus gives "
                f"{gpus.count} cards; give as many, or set NPROC_PER_NODE={gpus.count}"
            )
        if int(said) < gpus.count:
            notes.append(f"{said} of {gpus.count} cards train (NPROC_PER_NODE={said})")
        return int(said) * nodes
    if visible and visible not in ("all",):
        count = len(visible.split(","))
        if count < gpus.count:
            notes.append(f"CUDA_VISIBLE_DEVICES names {count} of {gpus.count} cards")
    if gpus.count > 1:
        notes.append(
            f"NPROC_PER_NODE is not set: planned as {gpus.count} processes; without it ms-swift "
            "starts one and spreads the layers over the cards"
        )
    return gpus.count * nodes


def _deepspeed(recipe: Recipe, processes: int, notes: list[str]) -> tuple[Any, bool, bool]:
    """Sharding, optimizer on the CPU, parameters on the CPU."""
    value = recipe.get("deepspeed")
    if value is None:
        if recipe.get("fsdp"):
            return "fsdp", False, False
        return ("ddp" if processes > 1 else "none"), False, False
    name = value.removesuffix(".json")
    if name in ("zero0", "zero1", "zero2", "zero3"):
        return ("ddp" if name == "zero0" else name), False, False
    if name == "zero2_offload":
        return "zero2", True, False
    if name == "zero3_offload":
        return "zero3", True, True
    try:
        config = json.loads(value if value.lstrip().startswith("{") else Path(value).read_text())
        zero = config.get("zero_optimization", {})
        stage = int(zero.get("stage", 0))
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(
            f"--deepspeed {value}: neither zero0 to zero3_offload nor a readable file ({error})"
        ) from None
    notes.append(f"of {value} only the stage and the offloading are read, sizes are the defaults")
    states = zero.get("offload_optimizer", {}).get("device", "none") == "cpu"
    parameters = zero.get("offload_param", {}).get("device", "none") == "cpu"
    return ("ddp" if stage == 0 else f"zero{stage}"), states, parameters


def _inputs(
    recipe: Recipe, model: Model, longest: Longest | None, notes: list[str]
) -> tuple[tuple[tuple[int, int, int], ...], int]:
    """Patches of the longest row's images, and its text tokens."""
    prompt = PROMPT_TEXT
    if longest and longest.text:
        prompt = longest.text
        notes.append(f"text of the longest row of {longest.source}: {prompt} tokens (characters/3)")
    elif longest is None:
        notes.append(f"no --dataset given: a prompt of {prompt} text tokens")
    if not model.sees:
        return (), prompt
    family = model.type if model.type in FAMILIES else "qwen2_vl"
    if model.type not in FAMILIES:
        notes.append(f"{model.type}: images are counted by Qwen2-VL's rule")
    low, high = limits(recipe, model)
    if longest is not None:
        sizes = longest.sizes(family, low, high)
        notes.append(f"images of the longest row of {longest.source}: {_sizes(sizes)}")
    else:
        frames = FAMILIES[family].frames
        side = max(1, int((high / frames) ** 0.5))
        sizes = [resized_size(family, side, side, min_pixels=low, max_pixels=high)]
        named = any(n in recipe.environment for n in ("MAX_PIXELS", "IMAGE_MAX_TOKEN_NUM"))
        said = "MAX_PIXELS" if named else "MAX_PIXELS is not set; the family's limit"
        tokens = sizes[0][0] * sizes[0][1] // FAMILIES[family].factor ** 2
        notes.append(
            f"no --dataset given: one image a row as large as allowed ({said}: {high}), "
            f"{tokens} tokens"
        )
    patch = model.patch
    return tuple((1, height // patch, width // patch) for width, height in sizes), prompt


def limits(recipe: Recipe, model: Model) -> tuple[int, int]:
    """min_pixels and max_pixels of this run: the template's, and ms-swift's own --max_pixels."""
    family = model.type if model.type in FAMILIES else "qwen2_vl"
    low, high = pixel_limits(family, model=model.name, environ=recipe.environment)
    if flag := _int(recipe, "max_pixels", 0):
        high = min(high, flag * FAMILIES[family].frames)
    return low, max(low, high)


def _sizes(sizes: list[tuple[int, int]]) -> str:
    return ", ".join(f"{width} x {height}" for width, height in sizes[:4]) or "none"


def _check_tp(model: Model, tp: int, processes: int) -> None:
    if tp < 1 or processes % tp:
        raise ValueError(
            f"--vllm_tensor_parallel_size {tp} does not divide the {processes} processes"
        )
    if model.heads % tp:
        raise ValueError(
            f"--vllm_tensor_parallel_size {tp} does not divide the {model.heads} attention heads "
            f"of {model.name}"
        )


def _evaluates(recipe: Recipe) -> bool:
    if recipe.get("eval_strategy") == "no":
        return False
    return bool(recipe.values("val_dataset")) or _float(recipe, "split_dataset_ratio", 0.0) > 0


def _int(recipe: Recipe, name: str, default: int) -> int:
    value = recipe.get(name)
    if value is None:
        _refuse_unknown(recipe, name)
        return default
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"--{name} {value}: a whole number is needed") from None


def _float(recipe: Recipe, name: str, default: float) -> float:
    value = recipe.get(name)
    if value is None:
        _refuse_unknown(recipe, name)
        return default
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"--{name} {value}: a number is needed") from None


def _true(recipe: Recipe, name: str, default: bool) -> bool:
    value = recipe.get(name)
    if value is None:
        _refuse_unknown(recipe, name)
        return default
    return value.lower() in ("true", "1", "yes")


def _refuse_unknown(recipe: Recipe, name: str) -> None:
    """A flag that is there with a value that only bash would know must not become its default."""
    flag = recipe.flag(name)
    if flag is not None and not flag.known:
        raise ValueError(
            f"{recipe.path}:{flag.line}: --{name} {' '.join(flag.values)} cannot be read without "
            "running the script; write its value"
        )
