"""A recipe's flags as the planner's Settings, by ms-swift's own defaults.

    settings = settings_of(read_recipe("recipes/demo_cpu.sh"), parse_gpus("4x80"))
    settings.assumptions     everything that decides the verdict and that the recipe does not say

Defaults: swift/arguments, swift/trainers/arguments.py and swift/rlhf_trainers/args_mixin.py of 4.6.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.memory.images import Longest
from swift_vlrft.memory.models import Model, read_model
from swift_vlrft.memory.ranges import NUMBERS, refuse_impossible
from swift_vlrft.memory.settings import Gpus, Settings
from swift_vlrft.memory.vllm import largest_image
from swift_vlrft.recipe.reader import FALSE, TRUE, Flag, Recipe
from swift_vlrft.recipe.rules.batches import batches
from swift_vlrft.recipe.rules.finding import PROBLEM
from swift_vlrft.shared_prefix import settings as shared_prefix

PROMPT_TEXT = 256
"""Text tokens of a prompt beside its images, assumed where no data set is given: the detection
prompts of this package have 120 to 200."""

PLUGIN_FILE = "vlrft.py"
"""Our plugin, as `vlrft plugin` prints it and as people copy it."""

TEXTS = [
    "rlhf_type",
    "model",
    "tuner_type",
    "train_type",
    "quant_bits",
    "deepspeed",
    "fsdp",
    "vllm_mode",
    "attn_impl",
    "optim",
    "torch_dtype",
    "lora_dtype",
    "eval_strategy",
    "val_dataset",
    "model_kwargs",
    "advantage_estimator",
    "importance_sampling_level",
    "external_plugins",
]
"""Flags whose text decides a plan; numbers and switches are asked for one by one."""

AGAINST_LIGER = (
    "delta",
    "off_policy_sequence_mask_delta",
    "teacher_model",
    "teacher_model_server",
    "advantage_reweight",
)
"""Flags whose presence makes ms-swift refuse --use_liger_kernel (rlhf_args.py)."""

OPTIMIZERS = {
    "adamw_8bit": "adamw_8bit",
    "adamw_bnb_8bit": "adamw_8bit",
    "paged_adamw_8bit": "adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "adamw_torch": "adamw_foreach",
    "adamw_torch_fused": "adamw",
}


def settings_of(
    recipe: Recipe, gpus: Gpus, *, nodes: int | None = None, longest: Longest | None = None
) -> Settings:
    """ValueError, in one line, where a flag or its absence makes a plan impossible.

    ``nodes``: machines, in place of the recipe's NNODES.
    """
    notes: list[str] = []
    _refuse_unread(recipe, notes)
    if recipe.get("rlhf_type") not in ("grpo", None) or recipe.command[-1] != "rlhf":
        raise ValueError(
            f"{recipe.path}: `{' '.join(recipe.command)}` with rlhf_type "
            f"{recipe.get('rlhf_type')}; the planner knows `swift rlhf --rlhf_type grpo`"
        )
    refuse_impossible(recipe, recipe.environment | _limits_in_kwargs(recipe))
    for found in batches(recipe):
        if found.level == PROBLEM:
            notes.append(f"what `vlrft check` calls a problem is mended: {found.text}")
    name = recipe.get("model")
    if not name:
        raise ValueError(f"{recipe.path}: no --model, or an empty one")
    model = read_model(name)
    if model.config.get("quantization_config"):
        notes.append("the checkpoint is quantized; its weights are planned in 16 bits")
    nodes = nodes or nodes_of(recipe)
    processes = _processes(recipe, gpus, nodes, notes)
    tuning = _tuning(recipe, notes)
    sharding, cpu_states, cpu_parameters = _deepspeed(recipe, processes, notes)
    batch = _int(recipe, "per_device_train_batch_size", 1)
    # swift/arguments/rlhf_args.py: _set_default takes 1 for GRPO.
    accumulation = _int(recipe, "gradient_accumulation_steps", 1)
    completion = _int(recipe, "max_completion_length", 512)
    said_steps = _int(recipe, "steps_per_generation", 0) or None
    steps = said_steps or accumulation
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
        _check_tp(recipe, model, tp, processes)
    engine_length = _int(recipe, "vllm_max_model_len", 0) or None
    if rollout == "vllm_colocate" and engine_length is None and (context := model.context):
        # args_mixin.py: None goes to vLLM, which then takes the whole context of the model.
        engine_length = context
        notes.append(
            f"vllm_max_model_len is not set: vLLM must be able to hold a row of {context} tokens, "
            "the model's whole context"
        )
    if rollout == "vllm_server":
        notes.append("the rollout server's cards are not planned: its flags are not the trainer's")
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
    optim = recipe.get("optim") or "adamw_torch_fused"
    optimizer = OPTIMIZERS.get(optim)
    if optimizer is None:
        notes.append(f"optim {optim} is planned as adamw, with two moments in 32 bits")
    notes.append("longest row: every sequence of a batch is as long as the longest")
    frozen_vit = _true(recipe, "freeze_vit", True)
    frozen_aligner = _true(recipe, "freeze_aligner", True)
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
        vllm_max_length=engine_length,
        vllm_profiled_patches=largest_image(model),
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
        steps_per_generation=said_steps,
        generation_batch=generation or None,
        pixels=_pixels_by(recipe, model),
        model_kwargs=json.dumps(_model_kwargs(recipe)),
        grids=grids,
        checkpoint_llm=checkpoints,
        checkpoint_vit=_true(recipe, "vit_gradient_checkpointing", checkpoints),
        attention=str(attention),
        # rlhf_args.py: a reference model for full tuning with a KL term; LoRA switches itself off.
        reference=beta != 0,
        # grpo_trainer.py: _prepare_batch_inputs computes them in every run.
        old_logps=True,
        dtype=recipe.get("torch_dtype") or "bfloat16",
        learning_rate=float(recipe.get("learning_rate") or 0) or None,
        float32_trainable=sharding == "fsdp",
        float32_adapters=recipe.get("lora_dtype") in (None, "float32", "None"),
        optimizer=optimizer or "adamw",  # type: ignore[arg-type]
        chunked_loss=_true(recipe, "use_liger_kernel", False),
        shared_prefix=shares and bool(grids),
        feature_cache=features,
        may_share_prefixes=_why_not_shared(recipe, model) is None,
        may_use_liger=_may_use_liger(recipe),
        assumptions=tuple(notes),
    )


def _shared_prefix(recipe: Recipe, model: Model, batch: int, notes: list[str]) -> tuple[bool, int]:
    """Whether prompts are shared, and how many bytes of image features are kept."""
    if not shared_prefix.switched_on(recipe.environment):
        return False, 0
    why = _why_not_shared(recipe, model)
    if why is None and batch == 1:
        why = "a micro-batch has one row"
    if why:
        notes.append(f"VLRFT_SHARED_PREFIX changes nothing here: {why}")
        return False, 0
    notes.append("VLRFT_SHARED_PREFIX: each prompt of a micro-batch is planned once")
    return True, shared_prefix.cache_bytes(recipe.environment)


def _why_not_shared(recipe: Recipe, model: Model) -> str | None:
    """What keeps our trainer (swift_plugin/trainer.py) from sharing prefixes, if anything."""
    why = None
    if not any(Path(file).name == PLUGIN_FILE for file in recipe.values("external_plugins")):
        why = f"{PLUGIN_FILE} is not among --external_plugins"
    elif not model.shares_prefixes:
        why = f"the model type is {model.type}"
    elif recipe.get("fsdp"):
        why = "--fsdp"
    elif _int(recipe, "sequence_parallel_size", 1) > 1:
        why = "--sequence_parallel_size"
    for flag in ("padding_free", "use_liger_kernel"):
        if _true(recipe, flag, False):
            why = f"--{flag}"
    return why


def _may_use_liger(recipe: Recipe) -> bool:
    """Without the ValueErrors of swift/arguments/rlhf_args.py: _init_grpo and what it calls."""
    return not (
        _true(recipe, "padding_free", False)
        or _true(recipe, "log_entropy", False)
        or _int(recipe, "sequence_parallel_size", 1) > 1
        or _float(recipe, "top_entropy_quantile", 1.0) < 1
        or _float(recipe, "sdar_loss_coef", 0.0) > 0
        or recipe.get("advantage_estimator", "grpo") != "grpo"
        or recipe.get("importance_sampling_level", "token") not in ("token", "sequence")
        or any(recipe.flag(name) for name in AGAINST_LIGER)
    )


def _tuning(recipe: Recipe, notes: list[str]) -> Any:
    value = recipe.get("tuner_type") or recipe.get("train_type") or "lora"
    if value not in ("lora", "full"):
        raise ValueError(f"{recipe.path}: --tuner_type {value}: the planner knows lora and full")
    bits = recipe.get("quant_bits")
    if value == "lora" and bits == "4":
        return "qlora"
    if bits is not None:
        notes.append(f"quant_bits {bits} with {value} tuning: the weights are planned in 16 bits")
    return value


def nodes_of(recipe: Recipe) -> int:
    """Machines: NNODES, as ms-swift hands it to torchrun (swift/cli/main.py)."""
    said = recipe.environment.get("NNODES", "").strip() or "1"
    if recipe.launcher:
        said = recipe.launched[1]
    elif "NNODES" in recipe.unknown:
        raise ValueError(
            f"{recipe.path}: only bash knows NNODES{_why(recipe, 'NNODES')}; give --nodes"
        )
    if not said.isdigit() or int(said) < 1:
        raise ValueError(f"{recipe.path}: NNODES={said} is no count of machines; give --nodes")
    return int(said)


def _processes(recipe: Recipe, gpus: Gpus, nodes: int, notes: list[str]) -> int:
    said = recipe.environment.get("NPROC_PER_NODE", "").strip()
    if recipe.launcher:
        said = recipe.launched[0]
    if not said and (recipe.launcher or "NPROC_PER_NODE" in recipe.unknown):
        who = recipe.launcher or "NPROC_PER_NODE"
        notes.append(
            f"only bash knows how many processes {who} starts: {gpus.count}, one for each card"
        )
        return gpus.count * nodes
    visible = recipe.environment.get("CUDA_VISIBLE_DEVICES", "").strip()
    cards = gpus.count
    if visible and visible not in ("all", "-1"):
        cards = min(cards, len([card for card in visible.split(",") if card.strip()]))
    named = f"CUDA_VISIBLE_DEVICES names {cards} of {gpus.count} cards"
    if said:
        if not said.isdigit() or int(said) < 1:
            raise ValueError(f"{recipe.path}: NPROC_PER_NODE={said} is no count of processes")
        if int(said) > gpus.count:
            raise ValueError(
                f"{recipe.path} starts {said} processes (NPROC_PER_NODE) and --gpus gives "
                f"{gpus.count} cards; give as many, or set NPROC_PER_NODE={gpus.count}"
            )
        if int(said) > cards:
            notes.append(f"{named}, NPROC_PER_NODE={said} more: planned for {said}")
        elif int(said) < gpus.count:
            notes.append(f"{said} of {gpus.count} cards train (NPROC_PER_NODE={said})")
        return int(said) * nodes
    if cards < gpus.count:
        notes.append(named)
    if cards > 1:
        notes.append(
            f"NPROC_PER_NODE is not set: planned as {cards} processes; without it ms-swift "
            "starts one and spreads the layers over the cards"
        )
    return cards * nodes


def _deepspeed(recipe: Recipe, processes: int, notes: list[str]) -> tuple[Any, bool, bool]:
    """Sharding, optimizer on the CPU, parameters on the CPU."""
    value = recipe.get("deepspeed")
    if value is None:
        if recipe.get("fsdp"):
            return "fsdp", False, False
        return ("ddp" if processes > 1 else "none"), False, False
    name = value.removesuffix(".json")
    if name in ("zero0", "zero1", "zero2", "zero3"):
        return name, False, False
    if name == "zero2_offload":
        return "zero2", True, False
    if name == "zero3_offload":
        return "zero3", True, True
    try:
        zero = _object(recipe, value).get("zero_optimization", {})
        stage = int(zero.get("stage", 0))
        if stage not in range(4):
            raise ValueError(f"there is no stage {stage}")
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{recipe.path}: --deepspeed {value}: neither zero0 to zero3_offload nor a readable "
            f"file ({error})"
        ) from None
    notes.append(f"of {value} only the stage and the offloading are read, sizes are the defaults")
    states = zero.get("offload_optimizer", {}).get("device", "none") == "cpu"
    parameters = zero.get("offload_param", {}).get("device", "none") == "cpu"
    return f"zero{stage}", states, parameters


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
    rule = model.image_rule
    if not model.knows_images:
        notes.append(f"{model.type}: images are counted by Qwen2-VL's rule")
    low, high = limits(recipe, model)
    if longest is not None:
        sizes = longest.sizes(rule, low, high)
        notes.append(f"images of the longest row of {longest.source}: {_sizes(sizes)}")
    else:
        side = max(1, int((high / rule.frames) ** 0.5))
        sizes = [rule.size(side, side, min_pixels=low, max_pixels=high)]
        by = _pixels_by(recipe, model)
        named = _named_limit(recipe, by)
        said = by if named else f"{by} is not set; the family's limit"
        tokens = sizes[0][0] * sizes[0][1] // rule.factor**2
        notes.append(
            f"no --dataset given: one image a row as large as allowed ({said}: {high}), "
            f"{tokens} tokens"
        )
    patch = model.patch
    return tuple((1, height // patch, width // patch) for width, height in sizes), prompt


def limits(recipe: Recipe, model: Model) -> tuple[int, int]:
    """min_pixels and max_pixels of this run: the template's, and ms-swift's own --max_pixels."""
    environment = recipe.environment | _limits_in_kwargs(recipe)
    low, high = model.image_rule.limits(model=model.name, environ=environment)
    if flag := _int(recipe, "max_pixels", 0):
        high = min(high, flag * model.image_rule.frames)
    return low, max(low, high)


def _limits_in_kwargs(recipe: Recipe) -> dict[str, str]:
    """--model_kwargs '{"max_pixels": N}' as ms-swift puts it into its environment, over what is
    there (swift/arguments/base_args/base_args.py: _init_model_kwargs).
    """
    given = {name.upper(): str(value) for name, value in _model_kwargs(recipe).items()}
    return {name: value for name, value in given.items() if name in RESOLUTION}


def _model_kwargs(recipe: Recipe) -> dict[str, Any]:
    text = recipe.get("model_kwargs")
    if text is None:
        return {}
    try:
        return {str(name): value for name, value in _object(recipe, text).items()}
    except (OSError, ValueError, AttributeError):
        raise ValueError(
            f"{recipe.path}: --model_kwargs {text}: neither a JSON object nor its file"
        ) from None


def _object(recipe: Recipe, text: str) -> Any:
    """What a flag gives as JSON, or as a file of it where the command runs."""
    if text.lstrip().startswith("{"):
        return json.loads(text)
    if (path := recipe.at(text)) is None:
        raise ValueError("the folder that it is in is not known")
    return json.loads(path.read_text())


def _pixels_by(recipe: Recipe, model: Model) -> Any:
    """What to change for smaller images: what this run's images obey (SmartResize.limits)."""
    if not model.knows_images or not model.image_rule.from_environment:
        return "max_pixels"  # ms-swift's flag scales the picture itself, whatever the template
    kwargs = _limits_in_kwargs(recipe)
    tokens = (recipe.environment | kwargs).get("IMAGE_MAX_TOKEN_NUM", "").strip()
    name = "IMAGE_MAX_TOKEN_NUM" if tokens else "MAX_PIXELS"
    return "model_kwargs" if name in kwargs else name


def _named_limit(recipe: Recipe, by: str) -> bool:
    if recipe.flag("max_pixels") is not None or by == "model_kwargs":
        return True
    return by != "max_pixels" and bool(recipe.environment.get(by, "").strip())


def _sizes(sizes: list[tuple[int, int]]) -> str:
    return ", ".join(f"{width} x {height}" for width, height in sizes[:4]) or "none"


def _check_tp(recipe: Recipe, model: Model, tp: int, processes: int) -> None:
    if tp < 1 or processes % tp:
        raise ValueError(
            f"{recipe.path}: --vllm_tensor_parallel_size {tp} does not divide the {processes} "
            "processes"
        )
    if model.heads % tp:
        raise ValueError(
            f"{recipe.path}: --vllm_tensor_parallel_size {tp} does not divide the {model.heads} "
            f"attention heads of {model.name}"
        )


def _evaluates(recipe: Recipe) -> bool:
    if recipe.get("eval_strategy") == "no":
        return False
    return bool(recipe.values("val_dataset")) or _float(recipe, "split_dataset_ratio", 0.0) > 0


def changed(recipe: Recipe, flags: Mapping[str, str]) -> Recipe:
    """``recipe`` with other flags; names in capitals are variables of its environment."""
    given = [Flag(name, (text,), recipe.line) for name, text in flags.items() if not name.isupper()]
    variables = {name: text for name, text in flags.items() if name.isupper()}
    return replace(
        recipe,
        flags=[*recipe.flags, *given],
        environment={**recipe.environment, **variables},
        unknown=recipe.unknown - set(variables),
    )


def as_written(
    recipe: Recipe, gpus: Gpus, *, nodes: int | None = None, longest: Longest | None = None
) -> Callable[[Mapping[str, str]], Settings | None]:
    """What ``recipe`` with other flags would be planned as; None where a rule between flags, kept
    before, would be broken.
    """
    if nodes:
        recipe = changed(recipe, {"NNODES": str(nodes)})
    said = {(found.rule, found.text if found.level == PROBLEM else "") for found in batches(recipe)}

    def written(flags: Mapping[str, str]) -> Settings | None:
        other = changed(recipe, flags)
        for found in batches(other):
            if (found.rule, found.text if found.level == PROBLEM else "") not in said:
                return None
        try:
            return settings_of(other, gpus, nodes=nodes, longest=longest)
        except ValueError:
            return None

    return written


def _int(recipe: Recipe, name: str, default: int) -> int:
    return int(_float(recipe, name, default))


def _float(recipe: Recipe, name: str, default: float) -> float:
    value = recipe.get(name)
    if value is None:
        _refuse_unknown(recipe, name)
        return default
    return float(value) if name in NUMBERS else int(value)


def _true(recipe: Recipe, name: str, default: bool) -> bool:
    _refuse_unknown(recipe, name)
    flag, value = recipe.flag(name), recipe.get(name)
    if flag and value is not None and value.lower() not in (*TRUE, *FALSE):
        raise ValueError(f"{recipe.path}:{flag.line}: --{name} {value}: true or false is needed")
    return bool(recipe.truth(name, default))


def _refuse_unread(recipe: Recipe, notes: list[str]) -> None:
    """What decides the plan and is known only to bash."""
    for name in TEXTS:
        _refuse_unknown(recipe, name)
    for name in (*RESOLUTION, shared_prefix.SWITCH, shared_prefix.CACHE):
        if name in recipe.unknown:
            raise ValueError(
                f"{recipe.path}: only bash knows {name}{_why(recipe, name)}; write its value"
            )
    if recipe.lost:
        notes.append(
            "variables may be set by what was not read (`vlrft check` names it): planned as if not"
        )


def _why(recipe: Recipe, name: str) -> str:
    said = [f"line {note.line}: {note.text}" for note in recipe.notes if f"${name} " in note.text]
    return f" ({said[0]})" if said else ""


def _refuse_unknown(recipe: Recipe, name: str) -> None:
    """A flag that is there with a value that only bash would know must not become its default."""
    flag = recipe.flag(name)
    if recipe.knows(name):
        return
    said = f"{flag.line}: --{name} {' '.join(flag.values)}" if flag else f"{recipe.line}: --{name}"
    raise ValueError(
        f"{recipe.path}:{said} cannot be read without running the script; write its value"
    )
