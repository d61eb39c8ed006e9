#!/usr/bin/env bash
# What docs/project/on_a_card.md asks of a GPU, the most telling first: one drawn and one photographed
# set, a recipe beside ms-swift's own example, then two more seeds of both sets. Each part leaves its
# table when it ends, and what is there is not run again.
#
# run      bash benchmarks/on_a_card.sh             # one GPU; how long it takes there was not measured
#          bash benchmarks/on_a_card.sh --tiny      # a rehearsal on a CPU, of two steps each
#          OUT is read from the environment. Neither network nor data are needed.
set -euo pipefail
cd "$(dirname "$0")/.."
OUT=${OUT:-runs/on_a_card}
RECIPE=recipes/qwen2_5_vl_3b/detection_lora_1x24g.sh
mkdir -p "$OUT"

[[ $* = --tiny ]] || vlrft doctor | tee "$OUT/versions.txt" || true
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$OUT/card.csv" || true
python benchmarks/trial_seeds.py "$OUT/seeds" --seeds 1 "$@" | tee "$OUT/first_seed.md"
python dev/reward_curves.py "$OUT/curve.svg" "$OUT/seeds/trial/drawn-0/grpo"
python benchmarks/gpu_recipe.py "$RECIPE" --out "$OUT/recipe" --stock "$@" --num_iterations 1 \
    | tee "$OUT/parts.jsonl"
python benchmarks/trial_seeds.py "$OUT/seeds" --seeds 3 "$@" | tee "$OUT/seeds.md"
