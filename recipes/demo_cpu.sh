#!/usr/bin/env bash
# The demo's training run: GRPO on a tiny InternVL3, no GPU. `make demo` makes MODEL and DATASET and calls this file.
# Tested with ms-swift 4.6.0, torch 2.13.0, transformers 5.19.0 on 2 CPU cores.
set -euo pipefail
: "${MODEL:?path of the warm-started checkpoint}" "${DATASET:?Parquet folder}" "${OUTPUT_DIR:?folder to write to}"
REWARDS=${REWARDS:-vlrft_classification}

# One thread: the matrices are small, a second one waits more than it works.
CUDA_VISIBLE_DEVICES='' \
OMP_NUM_THREADS=1 \
swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --output_dir "$OUTPUT_DIR" \
    --add_version false \
    --check_model false \
    --external_plugins "${PLUGIN:-$(vlrft plugin)}" \
    --reward_funcs $REWARDS vlrft_format \
    --tuner_type full \
    --torch_dtype float32 \
    --attn_impl sdpa \
    --use_vllm false \
    --per_device_train_batch_size 64 \
    --num_generations 8 \
    --max_completion_length 12 \
    --max_length 512 \
    --learning_rate 5e-4 \
    --lr_scheduler_type constant \
    --warmup_ratio 0 \
    --beta 0 \
    --temperature 1.0 \
    --gradient_checkpointing false \
    --max_steps 100 \
    --logging_steps 1 \
    --save_strategy steps \
    --save_steps 1000 \
    --save_only_model true \
    --dataloader_num_workers 0 \
    --log_completions true \
    --seed 42 \
    --report_to none \
    --callbacks graceful_exit \
    "$@"
