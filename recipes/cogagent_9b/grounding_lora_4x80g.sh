#!/usr/bin/env bash
# Grounding (referring expressions, one box): CogAgent-9B with LoRA, 4 GPUs of 80 GiB.
#
# tested   ms-swift 4.6.0: this file, with a tiny model of the same architecture on 2 CPU processes
#          (DeepSpeed ZeRO-2, colocated vLLM, both offloads). Not run on GPUs yet: time, memory and
#          --sleep_level 1 are not measured.
# memory   peak 35.6 GiB of 80 per GPU in weight sync (vlrft plan)
# run      bash recipes/cogagent_9b/grounding_lora_4x80g.sh
#          MODEL, DATASET, OUTPUT_DIR, NPROC_PER_NODE and CUDA_VISIBLE_DEVICES are read from the
#          environment; flags after the file name win over those below.
# go on    bash recipes/cogagent_9b/grounding_lora_4x80g.sh --resume_from_checkpoint OUTPUT_DIR/v0-DATE/checkpoint-50
# limits   Before a rollout the adapters are merged and all weights go to vLLM: in weight sync the GPU
#          holds the model twice. With --vllm_enable_lora true that happens once, then adapters alone
#          go; not under --sleep_level 2, which drops the engine's weights, and ms-swift warns of
#          adapters of the ViT. --sleep_level 1 keeps the engine's weights in host memory meanwhile.
# smaller  --deepspeed zero3; --per_device_train_batch_size 1 --gradient_accumulation_steps 8;
#          --max_completion_length 256; --num_generations 4
# note     Every image takes 1,602 tokens, whatever its size and MAX_PIXELS (docs/how_to/glm_4v.md): the
#          --max_length of 2,626 leaves 1,024 for the prompt's text. One image a row.
#          The model writes boxes in thousandths, as the data sets here do.
set -euo pipefail
MODEL=${MODEL:-zai-org/cogagent-9b-20241220}
: "${DATASET:?a folder with image, problem and solution (one box)}"
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/cogagent_9b_grounding}
export NPROC_PER_NODE=${NPROC_PER_NODE:-4}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((NPROC_PER_NODE - 1)))}  # a GPU a process
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}

swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --output_dir "$OUTPUT_DIR" \
    --external_plugins "$PLUGIN" \
    --reward_funcs vlrft_grounding_iou vlrft_format \
    --tuner_type lora \
    --lora_rank 16 \
    --lora_alpha 32 \
    --target_modules all-linear \
    --torch_dtype bfloat16 \
    --deepspeed zero2 \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_tensor_parallel_size 4 \
    --vllm_gpu_memory_utilization 0.4 \
    --vllm_max_model_len 4096 \
    --vllm_limit_mm_per_prompt '{"image": 1}' \
    --sleep_level 1 \
    --offload_model true \
    --offload_optimizer true \
    --max_length 2626 \
    --truncation_strategy delete \
    --max_completion_length 512 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 4 \
    --num_generations 8 \
    --num_iterations 2 \
    --num_generations_eval 1 \
    --temperature 1.0 \
    --beta 0.04 \
    --learning_rate 1e-5 \
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
