"""Refuse by name what cannot be planned, and say what a plan leaves out.

refuse(run)                     ValueError for a command that is not planned
next(refusals(run, settings))   "tuner_type", "--tuner_type vera: the planner knows ..."
"""

from collections.abc import Iterator

from swift_vlrft.memory.settings import Settings
from swift_vlrft.recipe.rules.turns import most_turns
from swift_vlrft.recipe.run import Run

PLANNED = "the planner knows `swift rlhf --rlhf_type grpo` and `swift sft`"

BITS, SAVED = "quant_bits", "modules_to_save"
EMBEDDINGS = ("embed_tokens", "lm_head")
"""--modules_to_save that is planned: copies that train beside the adapters."""

OTHER_MODELS = ("reward_model", "teacher_model", "ref_model")
"""Flags of models beside the one that trains."""

UNPLANNED = (
    *("use_dora", "multi_turn_scheduler", "chord_sft_per_device_train_batch_size"),
    *("vllm_quantization", "vllm_enable_lora", "vllm_pipeline_parallel_size"),
    *("freeze_parameters", "freeze_parameters_ratio", "freeze_parameters_regex"),
    *("trainable_parameters", "trainable_parameters_regex", "target_regex", "use_galore"),
    *("deepspeed_autotp_size", "zero_hpz_partition_size", "max_memory", "lisa_activated_layers"),
)
"""Flags that change memory, and of which a plan says that it does not know."""

ATTENTION = (
    *("sdpa", "eager", "flash_attn", "flex_attention"),
    *("flash_attention_2", "flash_attention_3", "flash_attention_4"),
)


def refuse(run: Run) -> None:
    """Raise ValueError for a command that is not planned, with what the plan would lack."""
    kind = run.text("rlhf_type") if run.command == "rlhf" else None
    what = f"{run.recipe.path}: `{' '.join(run.recipe.command)}`"
    what += f" with rlhf_type {kind}" if kind else ""
    if not run.grpo and run.command != "sft":
        raise ValueError(f"{what}; {PLANNED}")


def refusals(run: Run, stated: Settings) -> Iterator[tuple[str, str]]:
    """Yield the flag and the text of everything that makes a plan impossible. ``stated`` has the
    model, the processes and the numbers of the flags.
    """

    def shown(*flags: str) -> str:
        return " ".join(f"--{flag} {' '.join(run.texts(flag)) or run.text(flag)}" for flag in flags)

    model, tuner, names = stated.model, run.text("tuner_type"), run.texts("target_modules")
    engine, mode, bits = run.grpo and run.true("use_vllm"), run.text("vllm_mode"), run.text(BITS)
    attention, method, tp = run.text("attn_impl"), run.text("quant_method"), stated.vllm_tp
    if model.config.get("quantization_config"):
        text = f"the checkpoint {model.name} is quantized, which is not planned; give the model it "
        yield "model", f"{text}was made of, with --quant_method bnb --quant_bits 4 for QLoRA"
    for flag in OTHER_MODELS:
        if flag in run.given and set(run.texts(flag)) - {run.text("model")}:
            yield flag, f"{shown(flag)} is a second model, which is not planned; leave it out"
    if run.text("device_map") not in (None, "auto"):
        yield "device_map", f"{shown('device_map')} is not planned; write auto"
    if tuner not in ("lora", "full", "lora_llm") or (tuner == "lora_llm" and not model.sees):
        text = f"--tuner_type {tuner}: the planner knows lora, full and, with a ViT, lora_llm"
        yield "tuner_type", text
    if run.texts("target_parameters"):
        yield "target_parameters", "--target_parameters is not planned; leave it out"
    if tuner != "full" and set(run.texts(SAVED)) - {*EMBEDDINGS}:
        yield SAVED, f"{shown(SAVED)} is not planned; known are {', '.join(EMBEDDINGS)}"
    if tuner == "lora" and names not in ((), ("all-linear",)):
        unknown = (model.family is None and model.sees) or model.attention_layers < model.layers
        if unknown or set(names) - {*model.linear}:
            some = "" if unknown else f", or some of {', '.join(model.linear)}"
            text = f"{shown('target_modules')} is not planned; write all-linear alone{some}"
            yield "target_modules", text
    if engine and mode is None:
        yield "use_vllm", "--use_vllm needs --vllm_mode colocate or server"
    parts = {"processes": stated.processes, f"attention heads of {model.name}": model.heads}
    wrong = [f"{n} {part}" for part, n in parts.items() if n % tp]
    if wrong and engine and mode == "colocate":
        text = f"--vllm_tensor_parallel_size {tp} does not divide the {wrong[0]}"
        yield "vllm_tensor_parallel_size", text
    beside = engine and mode == "colocate"
    quantizes = method == "bnb" and bits in ("4", "8")
    # quant_args.py: bits alone quantize nothing; ms-swift hands the quantization to the engine,
    # and vLLM 0.32 does not know it.
    if method and (not quantizes or tuner != "lora" or beside or model.experts):
        text = f"--quant_method {method} --quant_bits {bits} is not planned here; only bnb with 4 "
        text += "or 8 bits is, with --tuner_type lora, without experts and with --use_vllm false"
        yield "quant_method", text
    if attention and attention not in ATTENTION and "/" not in attention:
        yield "attn_impl", f"--attn_impl {attention}: known are {', '.join(ATTENTION)}"
    if run.grpo and run.true("packing"):
        yield "packing", "--packing true is not planned for GRPO; leave it out"
    if stated.processes % stated.sequence_parallel:
        text = f"{shown('sequence_parallel_size')} does not divide the {stated.processes} processes"
        yield "sequence_parallel_size", text


def not_planned(run: Run) -> list[str]:
    """Return what changes memory, or may, and is not in the plan."""
    named = [name for name in UNPLANNED if name in run.given and run.texts(name) != ("false",)]
    if most_turns(run) > 1:
        named.remove("multi_turn_scheduler")
    unknown = [flag.name for flag in run.recipe.flags if flag.name not in run.flags]
    notes = [f"not planned, though it changes memory: --{name}" for name in named]
    return notes + [
        f"no flag of ms-swift, and left out of the plan: --{name}"
        for name in dict.fromkeys(unknown)
    ]
