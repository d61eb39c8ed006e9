#!/usr/bin/env bash
# Detection on ViRFT_COCO_base65: Qwen2.5-VL-3B, all weights; 6 GPUs of 80 GiB train, 2 generate.
#
# tested   ms-swift 4.6.0: this file, with a tiny model of the same architecture: two CPU processes that train and
#          one engine, on the loopback, weights sent over a TCP store instead of NCCL. Not run on
#          GPUs yet: time, memory and NCCL are not measured.
# memory   peak 19.6 GiB of 80 per GPU in weight sync (vlrft plan)
# run      bash recipes/qwen2_5_vl_3b/detection_server_6+2x80g.sh
#          MODEL, DATASET, OUTPUT_DIR, NPROC_PER_NODE, MAX_PIXELS, TRAIN_GPUS, ROLLOUT_GPUS and ROLLOUT_PORT are
#          read from the environment; flags after the file name go to `swift rlhf` and win over those
#          below, ROLLOUT_FLAGS goes to `swift rollout`. The first NPROC_PER_NODE GPUs train, the two
#          after them generate, unless TRAIN_GPUS and ROLLOUT_GPUS say otherwise.
# go on    the same with --resume_from_checkpoint OUTPUT_DIR/v0-DATE/checkpoint-50
# smaller  as in detection_4x80g.sh; --vllm_gpu_memory_utilization does not touch the GPUs that train
set -euo pipefail
MODEL=${MODEL:-Qwen/Qwen2.5-VL-3B-Instruct}
DATASET=${DATASET:-laolao77/ViRFT_COCO_base65:pixels}
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/qwen2_5_vl_3b_detection_server}
export NPROC_PER_NODE=${NPROC_PER_NODE:-6}
TRAIN_GPUS=${TRAIN_GPUS-$(seq -s, 0 $((NPROC_PER_NODE - 1)))}  # a GPU a process
ROLLOUT_GPUS=${ROLLOUT_GPUS-$(seq -s, $NPROC_PER_NODE $((NPROC_PER_NODE + 1)))}  # the two after them
export USE_HF=${USE_HF:-1}  # the data set is on Hugging Face; 0: ModelScope
export MAX_PIXELS=${MAX_PIXELS:-401408}  # 512 image tokens of 28 x 28 pixels
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}
export VLRFT_SHARED_PREFIX=${VLRFT_SHARED_PREFIX:-1}  # each prompt and image of a micro-batch once; 0: as ms-swift
ROLLOUT_PORT=${ROLLOUT_PORT:-8000}

# In a process group of its own, so that the engine's workers end with this script.
CUDA_VISIBLE_DEVICES=$ROLLOUT_GPUS \
setsid swift rollout \
    --model "$MODEL" \
    --external_plugins "$PLUGIN" \
    --torch_dtype bfloat16 \
    --vllm_data_parallel_size 2 \
    --vllm_gpu_memory_utilization 0.9 \
    --vllm_max_model_len 4096 \
    --vllm_limit_mm_per_prompt '{"image": 1, "video": 0}' \
    --host 127.0.0.1 \
    --port "$ROLLOUT_PORT" \
    ${ROLLOUT_FLAGS:-} &
ROLLOUT=$!
trap 'kill -- "-$ROLLOUT" 2>/dev/null || true' EXIT

CUDA_VISIBLE_DEVICES=$TRAIN_GPUS \
swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --output_dir "$OUTPUT_DIR" \
    --external_plugins "$PLUGIN" \
    --reward_funcs vlrft_detection_iou vlrft_detection_confidence vlrft_format \
    --tuner_type full \
    --freeze_vit false \
    --torch_dtype bfloat16 \
    --deepspeed zero3 \
    --use_vllm true \
    --vllm_mode server \
    --vllm_server_host 127.0.0.1 \
    --vllm_server_port "$ROLLOUT_PORT" \
    --vllm_server_timeout 600 \
    --max_length 2048 \
    --truncation_strategy delete \
    --max_completion_length 512 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 2 \
    --num_generations 8 \
    --num_iterations 2 \
    --num_generations_eval 1 \
    --temperature 1.0 \
    --beta 0.04 \
    --learning_rate 1e-6 \
    --num_train_epochs 1 \
    --gradient_checkpointing true \
    --vit_gradient_checkpointing true \
    --seed 42 \
    --data_seed 42 \
    --save_strategy steps \
    --save_steps 50 \
    --save_total_limit 2 \
    --logging_steps 1 \
    --log_completions true \
    --log_rollout_offpolicy_metrics true \
    --report_to tensorboard \
    --callbacks graceful_exit \
    "$@"
