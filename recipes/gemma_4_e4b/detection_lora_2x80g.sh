#!/usr/bin/env bash
# Detection on ViRFT_COCO_base65: Gemma 4 E4B with LoRA, 2 GPUs of 80 GiB.
#
# tested   ms-swift 4.6.0: this file, with a tiny model of the same architecture on 2 CPU processes
#          (DeepSpeed ZeRO-2, colocated vLLM, both offloads). Not run on GPUs yet: time, memory and
#          --sleep_level 1 are not measured.
# memory   peak 34.1 GiB of 80 per GPU in rollout (vlrft plan)
# run      bash recipes/gemma_4_e4b/detection_lora_2x80g.sh
#          MODEL, DATASET, OUTPUT_DIR, NPROC_PER_NODE and CUDA_VISIBLE_DEVICES are read from the
#          environment; flags after the file name win over those below.
# go on    bash recipes/gemma_4_e4b/detection_lora_2x80g.sh --resume_from_checkpoint OUTPUT_DIR/v0-DATE/checkpoint-50
# limits   Before a rollout the adapters are merged and all weights go to vLLM: in weight sync the GPU
#          holds the model twice. With --vllm_enable_lora true that happens once, then adapters alone
#          go; not under --sleep_level 2, which drops the engine's weights, and ms-swift warns of
#          adapters of the ViT. --sleep_level 1 keeps the engine's weights in host memory meanwhile.
# smaller  --deepspeed zero3; --per_device_train_batch_size 1 --gradient_accumulation_steps 8;
#          --max_completion_length 512; --num_generations 4 --gradient_accumulation_steps 2
# note     Every image takes up to 280 tokens, whatever its size and MAX_PIXELS; more only with
#          another max_soft_tokens in the checkpoint's preprocessor_config.json.
#          DATASET:native asks for boxes as the model was trained to write them: box_2d, y first,
#          in thousandths (yx1000).
set -euo pipefail
MODEL=${MODEL:-google/gemma-4-E4B-it}
DATASET=${DATASET:-laolao77/ViRFT_COCO_base65:native}
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/gemma_4_e4b_detection}
export NPROC_PER_NODE=${NPROC_PER_NODE:-2}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((NPROC_PER_NODE - 1)))}  # a GPU a process
export USE_HF=${USE_HF:-1}  # the data set is on Hugging Face; 0: ModelScope
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}

swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --output_dir "$OUTPUT_DIR" \
    --external_plugins "$PLUGIN" \
    --reward_funcs vlrft_detection_iou vlrft_detection_confidence vlrft_format \
    --tuner_type lora \
    --lora_rank 16 \
    --lora_alpha 32 \
    --target_modules all-linear \
    --torch_dtype bfloat16 \
    --deepspeed zero2 \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_tensor_parallel_size 1 \
    --vllm_gpu_memory_utilization 0.4 \
    --vllm_max_model_len 4096 \
    --vllm_limit_mm_per_prompt '{"image": 1, "video": 0, "audio": 0}' \
    --sleep_level 1 \
    --offload_model true \
    --offload_optimizer true \
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
