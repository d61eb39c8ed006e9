"""Read what the installed packages take for a flag: names from their registries.

The bounds of numbers and the kinds of variables are tables: what ms-swift 4.6.0 and vLLM 0.32 take.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Kind = Literal["int", "float", "bool"]
BOUNDS = {
    "[1, inf)": "context_parallel_size dataset_num_proc generation_batch_size global_batch_size "
    "gradient_accumulation_steps logging_steps lora_rank max_completion_length max_length "
    "max_pixels micro_batch_size move_model_batches num_generations num_iterations num_labels "
    "per_device_eval_batch_size per_device_train_batch_size pipeline_model_parallel_size "
    "sequence_parallel_size steps_per_generation tensor_model_parallel_size "
    "vllm_data_parallel_size vllm_max_model_len vllm_max_num_seqs vllm_pipeline_parallel_size "
    "vllm_tensor_parallel_size FPS_MAX_FRAMES FPS_MIN_FRAMES FRAME_FACTOR IMAGE_FACTOR "
    "IMAGE_MAX_TOKEN_NUM INPUT_SIZE MAX_NUM MAX_PIXELS MAX_SLICE_NUMS NFRAMES NNODES "
    "NPROC_PER_NODE SPATIAL_MERGE_SIZE VIDEO_MAX_PIXELS VIDEO_MAX_TOKEN_NUM VIDEO_TOTAL_PIXELS",
    "[0, inf)": "beta epsilon learning_rate lora_alpha max_grad_norm rlsd_reweight_clip_range "
    "sdar_loss_coef vllm_mm_processor_cache_gb warmup_steps weight_decay "
    "IMAGE_MIN_TOKEN_NUM MIN_PIXELS NODE_RANK",
    "(0, inf)": "eval_steps gkd_logits_topk repetition_penalty sdar_gate_beta FPS",
    "[0, 1]": "lora_dropout min_p rlsd_lambda split_dataset_ratio top_entropy_quantile",
    "[0, 2]": "sleep_level temperature",
    "(0, 1]": "top_p vllm_gpu_memory_utilization",
    "[1, 65535]": "MASTER_PORT",
    "[-1, inf)": "top_k",
    "[0, 1)": "warmup_ratio",
}
"""Names by their interval: what the packages refuse, what fails later, and what trains nothing."""
VARIABLES: dict[Kind, str] = {
    "int": "BASE_SIZE CELOSS_PARALLEL_SIZE FPS_MAX_FRAMES FPS_MIN_FRAMES FRAME_FACTOR HD_NUM "
    "IMAGE_AREA IMAGE_FACTOR IMAGE_MAX_TOKEN_NUM IMAGE_MIN_TOKEN_NUM IMAGE_SIZE IMG_SIZE "
    "INPUT_SIZE LISTWISE_RERANKER_MIN_GROUP_SIZE LOCAL_RANK MASTER_PORT MAX_NEGATIVE_SAMPLES "
    "MAX_NUM MAX_NUM_FRAMES MAX_PARTITION MAX_PIXELS MAX_POSITION_EMBEDDINGS "
    "MAX_POSITIVE_SAMPLES MAX_RATIO MAX_SLICE_NUMS MCORE_READER_MAX_WORKERS MIN_PIXELS "
    "MOSSVL_VISION_CHUNKED_LENGTH MSO_BRANCH_CHUNK NFRAMES NGRAM_WINDOW NNODES NODE_RANK "
    "NO_REPEAT_NGRAM_SIZE NPROC_PER_NODE NUM_CROPS NUM_FRAMES N_MELS RANK SAMPLING_RATE "
    "SPATIAL_MERGE_SIZE STACK_FRAMES SWIFT_CKPT_HCCL_META_TIMEOUT_S SWIFT_RAY_WEIGHT_BUCKET_MB "
    "SWIFT_ROLLOUT_DP_RANK SWIFT_ROLLOUT_TP_RANK SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE VIDEO_MAX_NUM "
    "VIDEO_MAX_PIXELS VIDEO_MAX_SLICE_NUMS VIDEO_MAX_TOKEN_NUM VIDEO_MIN_PIXELS "
    "VIDEO_MIN_TOKEN_NUM VIDEO_SEGMENTS VIDEO_TOTAL_PIXELS VLLM_NUM_FRAMES",
    "float": "CFG_WEIGHT CLEF_BRIER_WEIGHT CLEF_LABEL_SMOOTHING DEVICE_TFLOPS FPS "
    "INFONCE_FAKE_NEG_MARGIN INFONCE_TEMPERATURE LISTWISE_RERANKER_TEMPERATURE "
    "OMNIJEV_RPS_WEIGHT SWIFT_MAX_DOWNLOAD_SIZE_MB SWIFT_TIMEOUT",
    "bool": "CROP_MODE DISABLE_MP_DDP ENABLE_AUDIO_OUTPUT ENABLE_THINKING INFONCE_INCLUDE_DD "
    "INFONCE_INCLUDE_QQ INFONCE_MASK_FAKE_NEGATIVE INFONCE_USE_BATCH RANDOM_DATASET_RESPONSE "
    "SEED_USE_BUDGET_INTERVAL SEED_USE_THINKING SWIFT_ALLOW_INTERNAL_URL SWIFT_DEBUG "
    "SWIFT_TEST_CONVERT_PRECISION SWIFT_XING4_0_COMPILE_MHC SWIFT_XING4_0_STACKED_EXPERTS "
    "USE_AUDIO_IN_VIDEO USE_HF USE_HF_TRANSFER USE_OPENCOMPASS_EVALUATOR",
}
"""Names, by kind, of the numbers and switches that ms-swift reads from the environment."""
LOSS_TYPES = {
    "dpo": "aot aot_unpaired apo_down apo_zero bco_pair discopop exo_pair hinge ipo nca_pair "
    "robust sft sigmoid sppo_hard",
    "grpo": "bnpo cispo dapo dr_grpo fipo grpo real sapo",
}
"""What the trainers of --rlhf_type compare --loss_type with."""


def names() -> dict[str, list[str]]:
    """Return what a text flag may name beside files and hub ids, by flag or with --rlhf_type."""
    import swift
    from swift.agent_template import agent_template_map
    from swift.callbacks import callbacks_map
    from swift.loss import loss_map
    from swift.model import MODEL_MAPPING
    from swift.optimizers import optimizers_map
    from swift.template import TEMPLATE_MAPPING
    from transformers import AttentionInterface
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
    from transformers.trainer_utils import SchedulerType

    config = [path.stem for path in (Path(swift.__file__).parent / "config").glob("*.json")]
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
    known |= {f"loss_type {kind}": losses.split() for kind, losses in LOSS_TYPES.items()}
    return {name: sorted(map(str, values)) for name, values in sorted(known.items())}


def _templates(meta: object) -> Iterator[str]:
    yield from filter(None, (meta.template, *(group.template for group in meta.model_groups)))  # type: ignore[attr-defined]


def bounds() -> dict[str, str]:
    """Return the interval of each flag's or variable's values."""
    return dict(sorted((n, interval) for interval, names in BOUNDS.items() for n in names.split()))


def variables() -> dict[str, Kind]:
    """Return the kind of each environment variable that ms-swift reads as a number or a switch."""
    return dict(sorted((n, kind) for kind, names in VARIABLES.items() for n in names.split()))
