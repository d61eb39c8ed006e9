"""Settings hold everything that affects a run's memory, and the GPUs to run it on.

    parse_gpus("4x80")           Gpus(count=4, gib=78.8, name="80 GB")
    parse_gpus("2xA100-40G")     Gpus(count=2, gib=39.4, name="A100-40")

A recipe becomes Settings in from_recipe.py; a published case in benchmarks/memory_cases.py.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from swift_vlrft.memory.models import Model
from swift_vlrft.recipe.run import Run

GIB = 2**30

CAPACITY = {
    # torch's total_memory, as users' out-of-memory messages print it ("total capacity of ...").
    **{"T4": 14.7, "V100-16": 15.8, "V100-32": 31.7, "A10": 22.1, "4090": 23.6},
    **{"3090": 23.7, "L4": 22.2, "L20": 44.5, "L40": 44.4, "L40S": 44.4, "A6000": 47.5},
    **{"A100-40": 39.4, "A100-80": 79.2, "A800": 79.2, "H100": 79.1, "H800": 79.1},
    **{"H20": 95.1, "H200": 139.8},
}
USABLE = 0.985
"""Fraction of a GPU's nominal size if its kind is not known: the middle of the table's ratios."""

SMALLEST, LARGEST = 4, 1024  # GB of a GPU

# Ascending in what is divided.
Sharding = Literal["none", "ddp", "zero0", "zero1", "zero2", "zero3", "fsdp"]


@dataclass(frozen=True)
class Gpus:
    count: int
    gib: float
    name: str

    @property
    def bytes(self) -> int:
        return round(self.gib * GIB)


def _flag(name: str, default: Any, read: Callable[[Run, str], Any]) -> Any:
    """Return a field for the value of one of ms-swift's flags, as ``read`` reads it from a run."""
    return field(default=default, metadata={"flag": name, "read": read})


@dataclass(frozen=True)
class Settings:
    model: Model
    gpu_bytes: int
    processes: int = 1  # Training processes of all nodes, one per GPU
    nodes: int = 1
    spread: int = 1  # GPUs over which one process spreads the layers (device_map)
    tuning: Literal["full", "lora", "qlora", "lora_llm"] = "lora"
    """lora_llm: adapters in the language model, ViT and aligner train themselves."""
    quant_bits: int = 4  # Of QLoRA
    supervised: bool = False
    """`swift sft`: no rollout and no reference; the loss is the cross entropy of the answer."""
    lora_rank: int = _flag("lora_rank", 8, Run.integer)
    lora_targets: tuple[str, ...] = ()
    """--target_modules: the last part of the names of the layers with adapters; empty: every
    linear layer of what trains."""
    saved_embeddings: int = 0
    """Copies of the embedding and the head that train beside adapters (--modules_to_save)."""
    train_llm: bool = True
    train_vit: bool = False
    train_aligner: bool = False
    sharding: Sharding = "none"
    sequence_parallel: int = _flag("sequence_parallel_size", 1, Run.integer)
    """GPUs that share each row's tokens."""
    cpu_states: bool = False
    """DeepSpeed's offload_optimizer to cpu: master weights, moments and gradients."""
    cpu_parameters: bool = False  # DeepSpeed's offload_param to cpu
    rollout: Literal["vllm_colocate", "vllm_server", "transformers", "none"] = "transformers"
    vllm_tp: int = _flag("vllm_tensor_parallel_size", 1, Run.integer)
    vllm_utilization: float = _flag("vllm_gpu_memory_utilization", 0.9, Run.number)
    vllm_max_length: int | None = _flag("vllm_max_model_len", None, Run.optional)
    """Longest row of the engine; in a recipe without the flag the model's whole context."""
    vllm_profiled_patches: int | None = None
    """Patches of the image that vLLM profiles; None: the row's largest."""
    vllm_max_sequences: int | None = _flag("vllm_max_num_seqs", None, Run.optional)
    vllm_eager: bool = _flag("vllm_enforce_eager", False, Run.true)
    sleep_level: int = _flag("sleep_level", 0, Run.integer)
    offload_model: bool = _flag("offload_model", False, Run.true)
    offload_optimizer: bool = _flag("offload_optimizer", False, Run.true)
    move_model_batches: int = _flag("move_model_batches", 0, Run.integer)
    gather_for_generation: bool = _flag("ds3_gather_for_generation", True, Run.true)
    batch: int = _flag("per_device_train_batch_size", 1, Run.integer)
    accumulation: int = _flag("gradient_accumulation_steps", 1, Run.integer)
    generations: int = _flag("num_generations", 8, Run.integer)
    rollout_batch: int | None = None
    """Sequences that one GPU generates at once; by default batch x accumulation."""
    eval_batch: int = 0  # 0: no evaluation during training
    eval_generates: bool = False
    """--predict_with_generate: evaluation writes answers, with transformers."""
    prompt: int = 256  # Text tokens of the longest prompt
    completion: int = _flag("max_completion_length", 512, Run.integer)
    max_length: int | None = _flag("max_length", None, Run.optional)
    """Longest prompt, image tokens included."""
    steps_per_generation: int | None = _flag("steps_per_generation", None, Run.optional)
    """If the flag is given: micro-batches per generation."""
    pixels: str = "MAX_PIXELS"
    """What limits an image in this run: MAX_PIXELS, IMAGE_MAX_TOKEN_NUM, max_pixels (ms-swift's
    flag), or model_kwargs, which overrides the variables; "fixed" where nothing does."""
    grids: tuple[tuple[int, int, int], ...] = ()
    """Patches (time, rows, columns) of the images of the longest row."""
    crop_tokens: int = 0
    """Of ``grids``, the crops between answers: they count as a part of the completion."""
    checkpoint_llm: bool = _flag("gradient_checkpointing", True, Run.true)
    checkpoint_vit: bool = _flag("vit_gradient_checkpointing", True, Run.true)
    attention: str = "flash_attention_2"
    dense_vit_attention: bool = False
    """All patches of the batch against all: the ViT of Qwen2-VL and Qwen2.5-VL under sdpa until
    mid-2025."""
    reference: bool = _flag("beta", False, Run.true)
    """For full tuning with a KL term; LoRA switches itself off (rlhf_args.py)."""
    old_logps: bool = False
    dtype: str = _flag("torch_dtype", "bfloat16", Run.text)
    float32_trainable: bool = False
    """Only trainable weights in float32: accelerate's FSDP upcasts them (utils/fsdp_utils.py)."""
    float32_adapters: bool = True
    """LoRA's weights in float32, unless --lora_dtype or DeepSpeed says otherwise."""
    learning_rate: float | None = None  # Not for memory, but for the text of a change to LoRA
    optimizer: Literal["adamw", "adamw_foreach", "adamw_8bit", "adafactor", "sgd"] = "adamw"
    all_logits: bool = False
    """Logits of the prompt too, as trainers without logits_to_keep compute them."""
    chunked_loss: bool = _flag("use_liger_kernel", False, Run.true)
    shared_prefix: bool = False
    """VLRFT_SHARED_PREFIX=1: each prompt of a micro-batch once (docs/project/shared_prefix.md)."""
    expandable_segments: bool = False  # Of torch's allocator
    may_share_prefixes: bool = True
    """Whether VLRFT_SHARED_PREFIX=1 would have an effect: our plugin, without an exception."""
    assumptions: tuple[str, ...] = ()

    @property
    def processes_per_node(self) -> int:
        return max(1, self.processes // max(1, self.nodes))

    @property
    def colocated(self) -> bool:
        return self.rollout == "vllm_colocate"

    @property
    def patches(self) -> int:
        """Count the patches of a row's images."""
        return sum(t * h * w for t, h, w in self.grids)

    @property
    def image_tokens(self) -> int:
        return self.patches // self.model.merge**2

    @property
    def length(self) -> int:
        """Count the tokens of the longest row, with its completion."""
        images = self.image_tokens - self.crop_tokens
        prompt = self.prompt + images
        if self.max_length:
            prompt = max(min(prompt, self.max_length), images + len(self.grids) + 1)
        return prompt + self.completion

    @property
    def prompts(self) -> int:
        """Bound the distinct prompts of a micro-batch: ms-swift keeps a group's rows together."""
        rows, group = self.batch, max(1, self.generations)
        if rows % group == 0 or group % rows == 0:
            return -(-rows // group)
        return min(rows, (rows - 2) // group + 2)

    @property
    def generated_at_once(self) -> int:
        return self.rollout_batch or self.batch * self.accumulation

    @property
    def deepspeed(self) -> bool:
        return self.sharding.startswith("zero")

    @property
    def zero(self) -> int:
        return int(self.sharding[-1]) if self.deepspeed else 0

    @property
    def frozen_size(self) -> int:
        """Return the bytes of a parameter that does not train."""
        return 4 if self.dtype == "float32" else 2

    @property
    def trainable_size(self) -> int:
        """Return the bytes of a trainable parameter."""
        if self.float32_trainable:
            return 4
        # PEFT makes 16-bit adapters float32 (swift/tuners/peft.py: _cast_adapter_dtype_hook);
        # DeepSpeed's engine turns the whole module into bfloat16 again.
        adapters = self.tuning != "full" and not self.deepspeed and self.float32_adapters
        return 4 if adapters else self.frozen_size

    @property
    def shards_weights(self) -> bool:
        return self.sharding in ("zero3", "fsdp")


def parse_gpus(text: str) -> Gpus:
    """Parse ``4x80``, ``1x24``, ``4xA100-80G`` or ``8xH20``; a ValueError describes the form."""
    match = re.fullmatch(r"([1-9]\d*)X([\w-]+?)(?:GB?)?", text.upper())
    count, kind = (int(match[1]), match[2]) if match else (0, "")
    if kind in CAPACITY:
        return Gpus(count, CAPACITY[kind], kind)
    if kind.isdecimal() and SMALLEST <= int(kind) <= LARGEST:
        return Gpus(count, int(kind) * USABLE, f"{int(kind)} GB")
    raise ValueError(
        f"--gpus {text}: give COUNTxSIZE in GB, as 4x80, or COUNTxNAME, as 4xA100-80; known names: "
        f"{', '.join(CAPACITY)}"
    )
