#!/usr/bin/env bash
# GRPO of `vlrft try` on a GPU: all weights of a small warm-started model, colocated vLLM.
#
# tested   ms-swift 4.6.0: this file, with a tiny model on a CPU (DeepSpeed ZeRO-2, colocated vLLM, both
#          offloads, without sleep). On a GPU it has not run yet.
# run      `vlrft try DATA --device cuda` makes MODEL, as large as fits (docs/project/on_a_card.md), and
#          DATASET, and calls this file with the rate, steps and lengths of the trial.
# note     DeepSpeed keeps 32-bit copies of the bfloat16 weights: without them small steps are rounded
#          away. Without CUDA graphs the engine starts sooner, which counts in a run of minutes.
set -euo pipefail
: "${MODEL:?path of the warm-started checkpoint}" "${DATASET:?Parquet folder}"
REWARDS=${REWARDS:-vlrft_classification}
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/demo_gpu}
export NPROC_PER_NODE=${NPROC_PER_NODE:-1}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((NPROC_PER_NODE - 1)))}  # a GPU a process
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}
export VLRFT_SHARED_PREFIX=${VLRFT_SHARED_PREFIX:-1}  # each prompt and image of a micro-batch once; 0: as ms-swift

swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --output_dir "$OUTPUT_DIR" \
    --add_version false \
    --external_plugins "$PLUGIN" \
    --reward_funcs $REWARDS vlrft_format \
    --tuner_type full \
    --torch_dtype bfloat16 \
    --deepspeed zero2 \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_tensor_parallel_size 1 \
    --vllm_gpu_memory_utilization 0.3 \
    --vllm_max_model_len 1024 \
    --vllm_enforce_eager true \
    --sleep_level 1 \
    --offload_model true \
    --offload_optimizer true \
    --max_length 512 \
    --max_completion_length 128 \
    --per_device_train_batch_size 64 \
    --gradient_accumulation_steps 1 \
    --num_generations 8 \
    --num_generations_eval 1 \
    --temperature 1.0 \
    --beta 0 \
    --learning_rate 2.5e-5 \
    --lr_scheduler_type constant \
    --warmup_ratio 0 \
    --max_steps 60 \
    --gradient_checkpointing true \
    --vit_gradient_checkpointing true \
    --seed 42 \
    --data_seed 42 \
    --save_strategy steps \
    --save_steps 1000 \
    --logging_steps 1 \
    --log_completions true \
    --report_to none \
    --callbacks graceful_exit \
    "$@"
