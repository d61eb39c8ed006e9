#!/usr/bin/env bash
# Classification on ViRFT_CLS_flower_4_shot: GLM-4v-9b with LoRA, 1 GPU of 80 GiB.
#
# tested   ms-swift 4.6.0: this file, with a tiny model of the same architecture on 2 CPU processes
#          (DeepSpeed ZeRO-2, colocated vLLM, both offloads). Not run on GPUs yet: time, memory and
#          --sleep_level 1 are not measured.
#          LoRA rank 8 on query_key_value (the ViT's too), batch 1 and 512 + 512 tokens are those of
#          a published supervised run on one A100 (sft_lora_1x80g.sh).
# memory   peak 54.4 GiB of 80 per GPU in weight sync (vlrft plan)
# run      bash recipes/glm_4v_9b/classification_lora_1x80g.sh
#          MODEL, DATASET, OUTPUT_DIR, NPROC_PER_NODE and CUDA_VISIBLE_DEVICES are read from the
#          environment; flags after the file name win over those below.
# go on    bash recipes/glm_4v_9b/classification_lora_1x80g.sh --resume_from_checkpoint OUTPUT_DIR/v0-DATE/checkpoint-50
# limits   Before a rollout the adapters are merged and all weights go to vLLM: in weight sync the GPU
#          holds the model twice. With --vllm_enable_lora true that happens once, then adapters alone
#          go; not under --sleep_level 2, which drops the engine's weights, and ms-swift warns of
#          adapters of the ViT. --sleep_level 1 keeps the engine's weights in host memory meanwhile.
# smaller  --max_completion_length 256; --vllm_max_model_len 2626; --num_generations 4
#          --gradient_accumulation_steps 4; --vllm_enforce_eager true
# note     Every image takes 1,602 tokens, whatever its size and MAX_PIXELS (docs/how_to/glm_4v.md): the
#          --max_length of 2,114 leaves 512 for the prompt's text. One image a row.
#          DeepSpeed also on one GPU: it keeps 32-bit copies of the bfloat16 weights that are
#          trained (docs/reference/troubleshooting.md).
set -euo pipefail
MODEL=${MODEL:-zai-org/glm-4v-9b}
DATASET=${DATASET:-laolao77/ViRFT_CLS_flower_4_shot}
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/glm_4v_9b_classification}
export NPROC_PER_NODE=${NPROC_PER_NODE:-1}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((NPROC_PER_NODE - 1)))}  # a GPU a process
export USE_HF=${USE_HF:-1}  # the data set is on Hugging Face; 0: ModelScope
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}

swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --output_dir "$OUTPUT_DIR" \
    --external_plugins "$PLUGIN" \
    --reward_funcs vlrft_classification vlrft_format \
    --tuner_type lora \
    --lora_rank 8 \
    --lora_alpha 32 \
    --lora_dropout 0.1 \
    --target_modules query_key_value \
    --torch_dtype bfloat16 \
    --deepspeed zero2 \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_tensor_parallel_size 1 \
    --vllm_gpu_memory_utilization 0.5 \
    --vllm_max_model_len 4096 \
    --vllm_limit_mm_per_prompt '{"image": 1}' \
    --sleep_level 1 \
    --offload_model true \
    --offload_optimizer true \
    --max_length 2114 \
    --truncation_strategy delete \
    --max_completion_length 512 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 8 \
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
