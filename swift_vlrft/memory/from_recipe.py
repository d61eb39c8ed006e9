"""Turn a resolved recipe (recipe/run.py) into the planner's Settings.

settings = settings_of(read_run("recipes/demo_cpu.sh"), parse_gpus("4x80"))
settings.assumptions     everything that affects the verdict and is not in the recipe
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.memory.images import Longest
from swift_vlrft.memory.models import Model, read_model
from swift_vlrft.memory.refused import not_planned, refusals
from swift_vlrft.memory.row_tokens import images_of, supervised, turns_of
from swift_vlrft.memory.settings import Gpus, Settings
from swift_vlrft.memory.vllm import largest_image
from swift_vlrft.recipe.reader import Flag
from swift_vlrft.recipe.rules import PROBLEM, check_recipe
from swift_vlrft.recipe.rules.batches import BATCHES
from swift_vlrft.recipe.rules.model import of_videos
from swift_vlrft.recipe.run import NotKnown, Run, resolve
from swift_vlrft.shared_prefix import settings as shared_prefix

ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
VIDEO = re.compile("VIDEO_|FPS|NFRAMES")

PLUGIN_FILE = "vlrft.py"  # also of copies

ZERO = re.compile(r"(zero[0-3])|(zero[23])_offload")
"""ms-swift's DeepSpeed configurations; zero3_offload keeps the parameters on the CPU, too."""

OPTIMIZERS = {
    **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"), "adamw_8bit"),
    **{"adafactor": "adafactor", "sgd": "sgd"},
    **{"adamw_torch": "adamw_foreach", "adamw_torch_fused": "adamw"},
}


def settings_of(
    run: Run, gpus: Gpus, *, nodes: int | None = None, longest: Longest | None = None
) -> Settings:
    """Return settings. ValueError, in one line, if a flag or its absence makes a plan impossible.

    ``nodes``: in place of the recipe's NNODES.
    """
    run, notes = _certain(run)
    for name in (*RESOLUTION, shared_prefix.SWITCH):
        run.variable(name)  # which must be known
    for name in filter(run.given.get, run.facts.bounds):
        run.read(name)  # a number that is none, whether this run uses it or not
    problems = [finding.text for finding in check_recipe(run, BATCHES) if finding.level == PROBLEM]
    notes += [f"planned without this problem of `vlrft check`: {text}" for text in problems]
    notes += not_planned(run)
    model = model_of(run)
    if nodes is None:
        nodes = nodes_of(run)
        notes += [f"{nodes} nodes (NNODES), each with {gpus.count} of these GPUs"] * (nodes > 1)
    processes, spread = _processes(run, gpus, nodes, notes)
    flags = {f.name: f.metadata for f in fields(Settings) if f.metadata.get("flag") in run.flags}
    values = {name: its["read"](run, its["flag"]) for name, its in flags.items()}
    # old_logps: grpo_trainer.py: _prepare_batch_inputs computes them in every run.
    stated = Settings(model, gpus.bytes, processes, nodes, spread, **values, old_logps=run.grpo)
    for flag, text in refusals(run, stated):
        raise ValueError(f"{run.recipe.path}:{run.line(flag)}: {text}")
    settings = replace(stated, **_training(run, stated, notes))
    settings = replace(settings, **images_of(run, model, longest, notes))
    if run.grpo:
        settings = replace(settings, **turns_of(run, settings, notes))
        settings = replace(settings, **_rollout(run, settings, notes))
    else:
        settings = replace(settings, **supervised(run, settings, longest))
        rows = "packed rows" if run.true("packing") else "rows"
        notes.append(f"{rows} of {settings.length} tokens with answers of {settings.completion}")
    settings = replace(settings, **_forward(run, settings, notes))
    notes.append("longest row: every sequence of a batch is as long as the longest")
    return replace(settings, assumptions=tuple(notes))


def model_of(run: Run) -> Model:
    if not (name := run.text("model")):
        raise ValueError(f"{run.recipe.path}: --model is missing or empty")
    return read_model(name)


def _certain(run: Run) -> tuple[Run, list[str]]:
    """Take variables that unread lines may set as unset; return the run and the assumptions."""
    notes = [run.facts.note] if run.facts.note else []
    if run.recipe.lost:
        notes.append(
            "lines that were not read (see `vlrft check`) may set variables: planned as if not"
        )
        run = resolve(replace(run.recipe, lost=False), run.facts)
    return run, notes


def nodes_of(run: Run) -> int:
    """Return NNODES, as ms-swift hands it to torchrun (swift/cli/main.py)."""
    try:
        return _certain(run)[0].count("NNODES") or 1
    except ValueError as error:
        raise ValueError(f"{error}; or give --nodes") from None


def _processes(run: Run, gpus: Gpus, nodes: int, notes: list[str]) -> tuple[int, int]:
    """Return the processes of all nodes, and the GPUs over which each spreads the layers."""
    count, path = gpus.count, run.recipe.path
    try:
        processes = run.count("NPROC_PER_NODE")
    except NotKnown:
        who = run.recipe.launcher or "NPROC_PER_NODE"
        notes.append(f"only bash knows how many processes {who} starts: {count}, one for each GPU")
        return count * nodes, 1
    if processes not in (None, count):
        raise ValueError(
            f"{path} starts {processes} processes (NPROC_PER_NODE) and --gpus gives {count} GPUs; "
            f"give as many, or set NPROC_PER_NODE={count}"
        )
    if processes == count or count == 1:
        return count * nodes, 1
    visible = run.recipe.environment.get("CUDA_VISIBLE_DEVICES", "")
    if (seen := len(list(filter(str.strip, visible.split(","))))) not in (0, count):
        raise ValueError(
            f"{path}: CUDA_VISIBLE_DEVICES={visible} names {seen} and --gpus gives {count} GPUs; "
            "give as many"
        )
    notes.append(
        f"1 process for {count} GPUs (NPROC_PER_NODE): ms-swift spreads its layers over them "
        "(device_map)"
    )
    # swift/arguments/sft_args.py and rlhf_args.py
    engine = run.grpo and run.true("use_vllm") and "--use_vllm"
    flags = [f"--{name}" for name in ("deepspeed", "fsdp") if run.text(name)]
    if against := next(iter(flags), engine):
        raise ValueError(
            f"{path}: {notes[-1]}, which it refuses with {against}; set NPROC_PER_NODE={count}"
        )
    return nodes, count


def _training(run: Run, settings: Settings, notes: list[str]) -> dict[str, Any]:
    tuner, optim, sees = run.text("tuner_type"), run.text("optim") or "", settings.model.sees
    bits = int(run.text("quant_bits") or 0) if run.text("quant_method") else 0
    rows = settings.steps_per_generation or settings.accumulation
    if run.grpo and (generation := run.optional("generation_batch_size")):
        rows = max(1, generation // (settings.batch * settings.processes))
    sharding, cpu_states, cpu_parameters = _sharding(run, settings.processes, notes)
    if optim not in OPTIMIZERS:
        notes.append(f"optim {optim} is planned as adamw, with two moments in 32 bits")
    targets = run.texts("target_modules") if tuner == "lora" else ()  # lora_llm takes its own
    targets = () if targets == ("all-linear",) else targets
    named, whole = bool(sees and {*targets} & {*settings.model.vit_linear}), tuner == "lora_llm"
    if named and run.true("freeze_vit"):
        notes.append(f"--target_modules {' '.join(targets)} names layers of the ViT, which train")
    return {
        "tuning": "qlora" if bits else tuner,
        "quant_bits": bits,
        "lora_targets": targets,
        "saved_embeddings": len(set(run.texts("modules_to_save"))) * (tuner != "full"),
        "train_llm": whole or bool(targets) or not run.true("freeze_llm"),
        "train_vit": whole or (sees and (named if targets else not run.true("freeze_vit"))),
        "train_aligner": whole or (sees and not run.true("freeze_aligner")),
        "sharding": sharding,
        "cpu_states": cpu_states,
        "cpu_parameters": cpu_parameters,
        "dtype": settings.dtype or "bfloat16",
        # Only what the recipe says: ms-swift chooses another where the tuner changes.
        "learning_rate": "learning_rate" in run.given and run.number("learning_rate") or None,
        "float32_trainable": sharding == "fsdp",
        "float32_adapters": run.text("lora_dtype") in (None, "float32"),
        "optimizer": OPTIMIZERS.get(optim, "adamw"),
        "rollout_batch": settings.batch * rows,
        "eval_batch": run.integer("per_device_eval_batch_size") if run.evaluates else 0,
    }


def _sharding(run: Run, processes: int, notes: list[str]) -> tuple[str, bool, bool]:
    """Return the sharding, and whether DeepSpeed keeps optimizer and parameters on the CPU."""
    value = run.text("deepspeed")
    if value is None:
        return "fsdp" if run.text("fsdp") else "ddp" if processes > 1 else "none", False, False
    if match := ZERO.fullmatch(value.removesuffix(".json")):
        stage, offloads = match[1] or match[2], bool(match[2])
        return stage, offloads, offloads and stage == "zero3"
    try:
        zero = run.json("deepspeed").get("zero_optimization", {})
        if (stage := int(zero.get("stage", 0))) not in range(4):
            raise ValueError(f"there is no stage {stage}")
        devices = [zero.get(f"offload_{part}", {}).get("device") for part in ("optimizer", "param")]
        if "nvme" in devices:
            raise ValueError("offloads to nvme are not planned; write cpu")
        states, parameters = (device == "cpu" for device in devices)
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{run.recipe.path}: --deepspeed {value}: neither zero0 to zero3_offload nor a "
            f"file that is planned ({error})"
        ) from None
    notes.append(f"only stage and offloading of {value} are read; sizes are the defaults")
    return f"zero{stage}", states, parameters


def _forward(run: Run, settings: Settings, notes: list[str]) -> dict[str, Any]:
    """Say how activations are computed and saved."""
    attention = run.text("attn_impl")
    if attention is None:
        notes.append("attn_impl is not set: sdpa, PyTorch's own flash kernel")
    if run.true("padding_free") and settings.batch > 1:
        notes.append("padding_free: every row of a batch is as long as the longest, none is padded")
    environment = run.recipe.environment
    if not of_videos(run) and (videos := sorted(n for n in environment if VIDEO.match(n))):
        notes.append(f"{', '.join(videos)}: rows with videos are not planned, only images")
    why = _why_not_shared(run, settings.model)
    on = shared_prefix.switched_on(environment)
    alone = "a micro-batch has one row" if settings.batch == 1 else None
    shares = on and not (why or alone)
    if shares:
        notes.append("VLRFT_SHARED_PREFIX: each prompt of a micro-batch is planned once")
    elif on:
        notes.append(f"VLRFT_SHARED_PREFIX changes nothing here: {why or alone}")
    return {
        "attention": {"flash_attn": "flash_attention_2", None: "sdpa"}.get(attention, attention),
        # swift/trainers/mixin.py: get_use_logits_to_keep
        "all_logits": not settings.model.facts.keeps_logits
        or (not run.grpo and run.read("use_logits_to_keep") is False),
        "shared_prefix": shares and bool(settings.grids),
        "expandable_segments": any(
            "expandable_segments:True" in environment.get(n, "") for n in ALLOCATOR
        ),
        "may_share_prefixes": why is None,
    }


def _why_not_shared(run: Run, model: Model) -> str | None:
    """Say what keeps our trainer (swift_plugin/trainer.py) from sharing prefixes, if anything."""
    plugins = [Path(file).name for file in run.texts("external_plugins")]
    reasons = {
        "--use_liger_kernel": run.true("use_liger_kernel"),
        "--padding_free": run.true("padding_free"),
        "--multi_turn_scheduler": run.grpo and not run.omits("multi_turn_scheduler"),
        "it is not GRPO": not run.grpo,
        f"{PLUGIN_FILE} is not among --external_plugins": PLUGIN_FILE not in plugins,
        str(model.why_not_shared): model.why_not_shared is not None,
        "--fsdp": bool(run.text("fsdp")),
        "--sequence_parallel_size": run.integer("sequence_parallel_size") > 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _rollout(run: Run, settings: Settings, notes: list[str]) -> dict[str, Any]:
    if not run.true("use_vllm"):
        return {}
    mode, model, length = run.text("vllm_mode"), settings.model, settings.vllm_max_length
    if mode == "server":
        notes.append("the rollout server's GPUs are not planned: its flags are not the trainer's")
    elif length is None and model.context:
        # args_mixin.py: None goes to vLLM, which then takes the whole context of the model.
        length = model.context
        notes.append(
            f"vllm_max_model_len is not set: vLLM must be able to hold a row of {length} "
            "tokens, the model's whole context"
        )
    return {
        "rollout": "vllm_server" if mode == "server" else "vllm_colocate",
        "vllm_max_length": length,
        "vllm_profiled_patches": largest_image(model),
    }


def changed(run: Run, flags: Mapping[str, str]) -> Run:
    """Return ``run`` with other flags; names in capitals are variables of its environment."""
    recipe = run.recipe
    added = [Flag(name, (text,), recipe.line) for name, text in flags.items() if not name.isupper()]
    variables = {name: text for name, text in flags.items() if name.isupper()}
    other = replace(
        recipe,
        flags=[*recipe.flags, *added],
        environment={**recipe.environment, **variables},
        unknown=recipe.unknown - set(variables),
    )
    return resolve(other, run.facts)


def as_written(
    run: Run, gpus: Gpus, *, nodes: int | None = None, longest: Longest | None = None
) -> Callable[[Mapping[str, str]], Settings]:
    """Return a function from flags to the Settings of ``run`` with them. It raises ValueError if
    they would break a rule between flags that holds now.
    """

    def broken(run: Run) -> dict[tuple[str, str], str]:
        findings = check_recipe(run, BATCHES)
        return {(f.rule, f.text if f.level == PROBLEM else ""): f.text for f in findings}

    before = changed(run, {"NNODES": str(nodes)} if nodes else {})
    known = broken(before)

    def written(flags: Mapping[str, str]) -> Settings:
        other = changed(before, flags)
        settings = settings_of(other, gpus, nodes=nodes, longest=longest)
        for rule, text in broken(other).items():
            if rule not in known:
                raise ValueError(text)
        return settings

    return written
