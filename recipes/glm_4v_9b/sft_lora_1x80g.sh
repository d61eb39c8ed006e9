#!/usr/bin/env bash
# Supervised: flower classification with answers, GLM-4v-9b with LoRA, 1 GPU of 80 GiB.
#
# tested   ms-swift 4.6.0: this file, with a tiny model of the same architecture on a CPU: two
#          steps, evaluation with generation, a checkpoint. Not run on a GPU yet. Rank, lengths,
#          batch and learning rate are those of a published run on one A100 of 80 GB with the
#          makers' scripts, which recompute nothing: with 2 rows a GPU it ran out of memory, with 1
#          not. CogAgent's makers state 70 GB for it; docs/how_to/glm_4v.md has what the planner says.
# memory   peak 29.9 GiB of 80 per GPU in eval (vlrft plan)
# run      bash recipes/glm_4v_9b/sft_lora_1x80g.sh
#          MODEL, DATASET, OUTPUT_DIR, NPROC_PER_NODE and CUDA_VISIBLE_DEVICES are read from the
#          environment; flags after the file name win over those below.
# go on    bash recipes/glm_4v_9b/sft_lora_1x80g.sh --resume_from_checkpoint OUTPUT_DIR/v0-DATE/checkpoint-500
# smaller  --per_device_eval_batch_size 1; --max_new_tokens 256; --max_length 2114
# larger   A batch of 12 fits, 16 rows run out of memory in the backward pass; so do 2 with
#          both kinds of checkpointing off, and 64 in evaluation (vlrft plan).
# note     Every image takes 1,602 tokens (docs/how_to/glm_4v.md): the --max_length of 2,626 leaves 512 for
#          the prompt's text and 512 for the answer. Evaluation writes answers and scores them with
#          the reward that --eval_metric names. query_key_value is in the ViT too, which is adapted.
set -euo pipefail
MODEL=${MODEL:-zai-org/glm-4v-9b}
DATASET=${DATASET:-laolao77/ViRFT_CLS_flower_4_shot}
PLUGIN=${PLUGIN:-$(vlrft plugin)}
OUTPUT_DIR=${OUTPUT_DIR:-output/glm_4v_9b_sft}
export NPROC_PER_NODE=${NPROC_PER_NODE:-1}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((NPROC_PER_NODE - 1)))}  # a GPU a process
export USE_HF=${USE_HF:-1}  # the data set is on Hugging Face; 0: ModelScope
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}

swift sft \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --split_dataset_ratio 0.1 \
    --output_dir "$OUTPUT_DIR" \
    --external_plugins "$PLUGIN" \
    --tuner_type lora \
    --lora_rank 8 \
    --lora_alpha 32 \
    --lora_dropout 0.1 \
    --target_modules query_key_value \
    --torch_dtype bfloat16 \
    --max_length 2626 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 1 \
    --learning_rate 5e-4 \
    --max_steps 3000 \
    --gradient_checkpointing true \
    --vit_gradient_checkpointing true \
    --dataloader_num_workers 16 \
    --per_device_eval_batch_size 4 \
    --predict_with_generate true \
    --max_new_tokens 512 \
    --eval_metric vlrft_classification \
    --metric_for_best_model vlrft_classification \
    --eval_strategy steps \
    --eval_steps 500 \
    --seed 42 \
    --data_seed 42 \
    --save_strategy steps \
    --save_steps 500 \
    --save_total_limit 2 \
    --logging_steps 10 \
    --report_to tensorboard \
    --callbacks graceful_exit \
    "$@"
