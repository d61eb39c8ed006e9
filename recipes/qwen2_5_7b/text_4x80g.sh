#!/usr/bin/env bash
# Text: Qwen2.5-7B-Instruct with LoRA on mathematics, 4 GPUs of 80 GiB.
#
# tested   ms-swift 4.6.0: this file, with a tiny model of the same architecture on 2 CPU processes
#          (DeepSpeed ZeRO-3, colocated vLLM, both offloads). Not run on GPUs yet: time, memory and
#          --sleep_level 1 are not measured. Published for 4 x A100: batch 8, 8 generations and a
#          utilization of 0.6 ran out of memory, what stands here did not.
# memory   peak 41.9 GiB of 80 per GPU in rollout (vlrft plan)
# run      bash recipes/qwen2_5_7b/text_4x80g.sh
#          MODEL, DATASET, OUTPUT_DIR, NPROC_PER_NODE and CUDA_VISIBLE_DEVICES are read from the
#          environment; flags after the file name win over those below.
# go on    bash recipes/qwen2_5_7b/text_4x80g.sh --resume_from_checkpoint OUTPUT_DIR/v0-DATE/checkpoint-50
# limits   Before a rollout the adapters are merged and all weights go to vLLM: in weight sync the GPU
#          holds the model twice. With --vllm_enable_lora true that happens once, then adapters alone
#          go; not under --sleep_level 2, which drops the engine's weights. --sleep_level 1 keeps them
#          in host memory meanwhile.
# smaller  --per_device_train_batch_size 1 --gradient_accumulation_steps 8;
#          --vllm_gpu_memory_utilization 0.4; --max_completion_length 512; --beta 0 changes little:
#          with LoRA the reference model is the same one
# note     rows whose prompt exceeds 1,024 tokens are left out (--truncation_strategy delete). The
#          reward accuracy needs: pip install math_verify
set -euo pipefail
MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
DATASET=${DATASET:-AI-MO/NuminaMath-TIR#10000}
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/qwen2_5_7b_text}
export NPROC_PER_NODE=${NPROC_PER_NODE:-4}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((NPROC_PER_NODE - 1)))}  # a GPU a process
export USE_HF=${USE_HF:-1}  # the data set is on Hugging Face; 0: ModelScope
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}

swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --output_dir "$OUTPUT_DIR" \
    --external_plugins "$PLUGIN" \
    --reward_funcs accuracy vlrft_format \
    --system 'First think in <think> </think>, then answer in <answer> </answer>.' \
    --tuner_type lora \
    --lora_rank 16 \
    --lora_alpha 32 \
    --target_modules all-linear \
    --torch_dtype bfloat16 \
    --deepspeed zero3 \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_tensor_parallel_size 4 \
    --vllm_gpu_memory_utilization 0.5 \
    --vllm_max_model_len 2048 \
    --sleep_level 1 \
    --offload_model true \
    --offload_optimizer true \
    --max_length 1024 \
    --truncation_strategy delete \
    --max_completion_length 1024 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 4 \
    --num_generations 4 \
    --num_iterations 2 \
    --num_generations_eval 1 \
    --temperature 1.0 \
    --beta 0.04 \
    --learning_rate 1e-5 \
    --num_train_epochs 1 \
    --gradient_checkpointing true \
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
