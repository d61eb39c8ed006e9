#!/usr/bin/env bash
# Five tasks in one run: Qwen3-VL-4B, all language weights, 4 GPUs of 80 GiB. Detection, grounding (also of what is not in
# the picture: No Objects), counting, text and points, in the shares that the numbers behind # say.
#
# tested   ms-swift 4.6.0: this file, with a tiny model of the same architecture on 2 CPU processes
#          (DeepSpeed ZeRO-3, colocated vLLM, both offloads). Not run on GPUs yet: time, memory and
#          --sleep_level 1 are not measured.
# memory   peak 49.5 GiB of 80 per GPU in rollout (vlrft plan)
# run      bash recipes/qwen3_vl_4b/mixed_4x80g.sh
#          Rows are of the task that their column task names; a task with fewer rows than asked for is repeated, one with
#          more is sampled. Sets of one task each stand in the place of "$DATASET:task" as they are.
#          rewards/NAME/mean is of the rows of that reward's task alone: the curve of a task.
#          MODEL, DATASET, OUTPUT_DIR, NPROC_PER_NODE, CUDA_VISIBLE_DEVICES and MAX_PIXELS are read
#          from the environment; flags after the file name win over those below.
# go on    bash recipes/qwen3_vl_4b/mixed_4x80g.sh --resume_from_checkpoint OUTPUT_DIR/v0-DATE/checkpoint-50
# smaller  --beta 0 (no reference model); --vllm_gpu_memory_utilization 0.4;
#          --per_device_train_batch_size 1 --gradient_accumulation_steps 8; MAX_PIXELS=262144;
#          --num_generations 4; --deepspeed zero3_offload
set -euo pipefail
MODEL=${MODEL:-Qwen/Qwen3-VL-4B-Instruct}
: "${DATASET:?a folder with image, problem, solution and task}"
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/qwen3_vl_4b_mixed}
export NPROC_PER_NODE=${NPROC_PER_NODE:-4}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((NPROC_PER_NODE - 1)))}  # a GPU a process
export MAX_PIXELS=${MAX_PIXELS:-524288}  # 512 image tokens of 32 x 32 pixels
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}
export VLRFT_SHARED_PREFIX=${VLRFT_SHARED_PREFIX:-1}  # each prompt and image of a micro-batch once; 0: as ms-swift

swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET:detection#4000" "$DATASET:grounding#4000" "$DATASET:counting#2000" "$DATASET:ocr#2000" \
    "$DATASET:pointing#2000" \
    --output_dir "$OUTPUT_DIR" \
    --external_plugins "$PLUGIN" \
    --reward_funcs vlrft_detection_iou vlrft_grounding_iou vlrft_counting vlrft_ocr vlrft_pointing vlrft_format \
    --tuner_type full \
    --freeze_vit true \
    --torch_dtype bfloat16 \
    --deepspeed zero3 \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_tensor_parallel_size 4 \
    --vllm_gpu_memory_utilization 0.5 \
    --vllm_max_model_len 4096 \
    --vllm_limit_mm_per_prompt '{"image": 1, "video": 0}' \
    --sleep_level 1 \
    --offload_model true \
    --offload_optimizer true \
    --max_length 2048 \
    --truncation_strategy delete \
    --max_completion_length 512 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 4 \
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
