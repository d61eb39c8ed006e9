#!/usr/bin/env bash
# Detection on ViRFT_COCO_base65: Qwen2.5-VL-3B, all weights, 2 nodes of 8 GPUs of 80 GiB.
#
# tested   ms-swift 4.6.0: this file, with a tiny model of the same architecture as two nodes of one CPU
#          process each, on the loopback (DeepSpeed ZeRO-3, colocated vLLM, both offloads). Not run
#          on GPUs yet: time, memory, NCCL and --sleep_level 1 are not measured.
# memory   peak 43.6 GiB of 80 per GPU in rollout (vlrft plan)
# before   do the nodes agree? docs/how_to/two_nodes.md has the command
# run      bash, on each node, with the address of the first one:
#          NODE_RANK=0 MASTER_ADDR=10.0.0.1 bash recipes/qwen2_5_vl_3b/detection_2nodes_8x80g.sh
#          NODE_RANK=1 MASTER_ADDR=10.0.0.1 bash recipes/qwen2_5_vl_3b/detection_2nodes_8x80g.sh
#          MODEL, DATASET, OUTPUT_DIR (one folder that both nodes see), NNODES, NPROC_PER_NODE,
#          CUDA_VISIBLE_DEVICES, MASTER_PORT and MAX_PIXELS are read from the environment; flags after
#          the file name win over those below.
# lost     where a node dies or falls silent, the other ends within --ddp_timeout seconds (ms-swift's own
#          is 208 days); no rank may need longer than that for what the others wait for
# go on    the same on both with --resume_from_checkpoint OUTPUT_DIR/v0-DATE/checkpoint-50
# smaller  as in detection_4x80g.sh
set -euo pipefail
: "${NODE_RANK:?0 on the first node, 1 on the second}"
: "${MASTER_ADDR:?address of the first node}"
export NODE_RANK MASTER_ADDR
export MASTER_PORT=${MASTER_PORT:-29500}
export NNODES=${NNODES:-2}
MODEL=${MODEL:-Qwen/Qwen2.5-VL-3B-Instruct}
DATASET=${DATASET:-laolao77/ViRFT_COCO_base65:pixels}
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/qwen2_5_vl_3b_detection_2nodes}
export NPROC_PER_NODE=${NPROC_PER_NODE:-8}
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
    --reward_funcs vlrft_detection_iou vlrft_detection_confidence vlrft_format \
    --tuner_type full \
    --freeze_vit false \
    --torch_dtype bfloat16 \
    --ddp_timeout 1800 \
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
