#!/usr/bin/env bash
# Detection on ViRFT_COCO_base65: Qwen3-VL-4B with QLoRA (weights in 4 bits), 1 GPU of 24 GiB.
#
# tested   ms-swift 4.6.0: this file, with a tiny model of the same architecture on 2 CPU processes
#          (DeepSpeed ZeRO-2, bitsandbytes 0.50.2 on the CPU, transformers generates). Not run on
#          GPUs yet: time, memory and bitsandbytes' CUDA kernels are not measured.
# memory   peak 6.3 GiB of 24 per GPU in rollout (vlrft plan)
# needs    pip install bitsandbytes
# run      bash recipes/qwen3_vl_4b/detection_qlora_1x24g.sh
#          MODEL, DATASET, OUTPUT_DIR, NPROC_PER_NODE, CUDA_VISIBLE_DEVICES and MAX_PIXELS are read
#          from the environment; flags after the file name win over those below.
# go on    bash recipes/qwen3_vl_4b/detection_qlora_1x24g.sh --resume_from_checkpoint OUTPUT_DIR/v0-DATE/checkpoint-50
# limits   No vLLM: for 4-bit weights ms-swift starts the engine with bitsandbytes, which vLLM 0.32
#          does not know, with --vllm_enable_lora, too. transformers generates, many times slower. By
#          vlrft plan LoRA with vLLM fits as well, with MODEL=Qwen/Qwen3-VL-4B-Instruct in front of
#          recipes/qwen3_vl_2b/detection_lora_1x24g.sh; take this file where it does not.
# smaller  --per_device_train_batch_size 1 --gradient_accumulation_steps 8; --max_completion_length
#          256; MAX_PIXELS=262144; --num_generations 4 --gradient_accumulation_steps 4
# faster   with room left: --per_device_train_batch_size 8 --gradient_accumulation_steps 1
# note     DeepSpeed also on one GPU: it keeps 32-bit copies of the bfloat16 weights that are
#          trained. Without them small steps are rounded away, and a LoRA run cannot go on from a
#          checkpoint (docs/reference/troubleshooting.md).
set -euo pipefail
MODEL=${MODEL:-Qwen/Qwen3-VL-4B-Instruct}
DATASET=${DATASET:-laolao77/ViRFT_COCO_base65}
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/qwen3_vl_4b_detection_qlora}
export NPROC_PER_NODE=${NPROC_PER_NODE:-1}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((NPROC_PER_NODE - 1)))}  # a GPU a process
export USE_HF=${USE_HF:-1}  # the data set is on Hugging Face; 0: ModelScope
export MAX_PIXELS=${MAX_PIXELS:-524288}  # 512 image tokens of 32 x 32 pixels
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}
export VLRFT_SHARED_PREFIX=${VLRFT_SHARED_PREFIX:-1}  # each prompt and image of a micro-batch once; 0: as ms-swift

swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --output_dir "$OUTPUT_DIR" \
    --external_plugins "$PLUGIN" \
    --reward_funcs vlrft_detection_iou vlrft_detection_confidence vlrft_format \
    --tuner_type lora \
    --lora_dropout 0 \
    --lora_rank 16 \
    --lora_alpha 32 \
    --target_modules all-linear \
    --torch_dtype bfloat16 \
    --quant_method bnb \
    --quant_bits 4 \
    --bnb_4bit_quant_type nf4 \
    --bnb_4bit_use_double_quant true \
    --bnb_4bit_compute_dtype bfloat16 \
    --deepspeed zero2 \
    --use_vllm false \
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
    --report_to tensorboard \
    --callbacks graceful_exit \
    "$@"
