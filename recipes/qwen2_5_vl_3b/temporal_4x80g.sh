#!/usr/bin/env bash
# When in a video? Spans of time on Charades-STA's form: Qwen2.5-VL-3B, all language weights, 4 GPUs of 80 GiB.
#
# tested   ms-swift 4.6.0: this file, with a tiny model of the same architecture on 2 CPU processes
#          (DeepSpeed ZeRO-3, transformers generates) and drawn clips. Not run on GPUs yet: time and
#          memory are not measured.
# memory   peak 28.4 GiB of 80 per GPU in rollout (vlrft plan)
# run      bash recipes/qwen2_5_vl_3b/temporal_4x80g.sh
#          ROOT_IMAGE_DIR is the folder of the videos, where they do not lie beside the rows.
#          MODEL, DATASET, OUTPUT_DIR, NPROC_PER_NODE, CUDA_VISIBLE_DEVICES, FPS, FPS_MAX_FRAMES and
#          VIDEO_MAX_PIXELS are read from the environment; flags after the file name win over those below.
# go on    bash recipes/qwen2_5_vl_3b/temporal_4x80g.sh --resume_from_checkpoint OUTPUT_DIR/v0-DATE/checkpoint-50
# limits   transformers generates, many times slower than vLLM. With --use_vllm true --vllm_mode colocate
#          tiny models agree (vlrft agree); this recipe was not run so.
# smaller  --beta 0 (no reference model); FPS=1; FPS_MAX_FRAMES=32; --num_generations 4;
#          --optim adafactor; --deepspeed zero3_offload
# note     A video of 32 seconds takes up to 4,288 tokens; longer ones are seen in 64 frames, too.
set -euo pipefail
MODEL=${MODEL:-Qwen/Qwen2.5-VL-3B-Instruct}
: "${DATASET:?rows of videos, problem and solution (spans in seconds), or the JSON of Charades-STA}"
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/qwen2_5_vl_3b_temporal}
export NPROC_PER_NODE=${NPROC_PER_NODE:-4}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((NPROC_PER_NODE - 1)))}  # a GPU a process
export FPS=${FPS:-2}  # frames a second
export FPS_MAX_FRAMES=${FPS_MAX_FRAMES:-64}  # two frames are up to 134 tokens
export VIDEO_MAX_PIXELS=${VIDEO_MAX_PIXELS:-100352}  # 128 tokens of 28 x 28 pixels
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}

swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --output_dir "$OUTPUT_DIR" \
    --external_plugins "$PLUGIN" \
    --reward_funcs vlrft_temporal_iou vlrft_format \
    --tuner_type full \
    --freeze_vit true \
    --torch_dtype bfloat16 \
    --deepspeed zero3 \
    --use_vllm false \
    --max_length 5120 \
    --truncation_strategy delete \
    --max_completion_length 512 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 8 \
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
    --report_to tensorboard \
    --callbacks graceful_exit \
    "$@"
