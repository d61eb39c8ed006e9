#!/usr/bin/env bash
# Classification on ViRFT_CLS_flower_4_shot: GLM-4.1V-9B-Thinking with LoRA, 2 GPUs of 80 GiB.
#
# tested   ms-swift 4.6.0: this file, with a tiny model of the same architecture on 2 CPU processes
#          (DeepSpeed ZeRO-2, colocated vLLM, both offloads). Not run on GPUs yet: time, memory and
#          --sleep_level 1 are not measured.
# memory   peak 34.1 GiB of 80 per GPU in rollout (vlrft plan)
# run      bash recipes/glm_4_1v_9b/classification_lora_2x80g.sh
#          MODEL, DATASET, OUTPUT_DIR, NPROC_PER_NODE, CUDA_VISIBLE_DEVICES and MAX_PIXELS are read
#          from the environment; flags after the file name win over those below.
# go on    bash recipes/glm_4_1v_9b/classification_lora_2x80g.sh --resume_from_checkpoint OUTPUT_DIR/v0-DATE/checkpoint-50
# limits   Before a rollout the adapters are merged and all weights go to vLLM: in weight sync the GPU
#          holds the model twice. With --vllm_enable_lora true that happens once, then adapters alone
#          go; not under --sleep_level 2, which drops the engine's weights, and ms-swift warns of
#          adapters of the ViT. --sleep_level 1 keeps the engine's weights in host memory meanwhile.
# smaller  --deepspeed zero3; --per_device_train_batch_size 1 --gradient_accumulation_steps 8;
#          --max_completion_length 512; MAX_PIXELS=200704; --num_generations 4
# note     ms-swift hands MAX_PIXELS to Qwen only, so it is passed as --max_pixels here.
set -euo pipefail
MODEL=${MODEL:-zai-org/GLM-4.1V-9B-Thinking}
DATASET=${DATASET:-laolao77/ViRFT_CLS_flower_4_shot}
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/glm_4_1v_9b_classification}
export NPROC_PER_NODE=${NPROC_PER_NODE:-2}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((NPROC_PER_NODE - 1)))}  # a GPU a process
export USE_HF=${USE_HF:-1}  # the data set is on Hugging Face; 0: ModelScope
export MAX_PIXELS=${MAX_PIXELS:-401408}  # 512 image tokens of 28 x 28 pixels
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}
export VLRFT_SHARED_PREFIX=${VLRFT_SHARED_PREFIX:-1}  # each prompt and image of a micro-batch once; 0: as ms-swift

swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --output_dir "$OUTPUT_DIR" \
    --external_plugins "$PLUGIN" \
    --reward_funcs vlrft_classification vlrft_format \
    --tuner_type lora \
    --lora_dropout 0 \
    --lora_rank 16 \
    --lora_alpha 32 \
    --target_modules all-linear \
    --torch_dtype bfloat16 \
    --deepspeed zero2 \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_tensor_parallel_size 2 \
    --vllm_gpu_memory_utilization 0.4 \
    --vllm_max_model_len 4096 \
    --vllm_limit_mm_per_prompt '{"image": 1, "video": 0}' \
    --sleep_level 1 \
    --offload_model true \
    --offload_optimizer true \
    --max_pixels "$MAX_PIXELS" \
    --max_length 2048 \
    --truncation_strategy delete \
    --max_completion_length 1024 \
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
