#!/usr/bin/env bash
# Peak memory and seconds a step of a recipe, with a full-size Qwen2.5-VL-3B of random weights. Not run yet.
#
# needs    one NVIDIA GPU or more, ms-swift and what the recipe uses; neither network nor data
# run      bash benchmarks/gpu_recipe.sh                          # qwen2_5_vl_3b/detection_lora_1x24g.sh, 5 steps
#          bash benchmarks/gpu_recipe.sh RECIPE.sh --use_vllm false --sleep_level 0     # transformers rollout
# writes   $OUT/memory.csv (nvidia-smi, every half second), $OUT/train/logging.jsonl, and prints what belongs
#          into the recipe's header. Answers are random text, so rewards mean nothing here.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
RECIPE=${1:-$HERE/recipes/qwen2_5_vl_3b/detection_lora_1x24g.sh}
shift || true
OUT=${OUT:-runs/gpu_recipe}
STEPS=${STEPS:-5}
PYTHON=${PYTHON:-python}
export NPROC_PER_NODE=${NPROC_PER_NODE:-$(nvidia-smi --list-gpus | wc -l)}
mkdir -p "$OUT"

MODEL=${MODEL:-$OUT/model}
test -d "$MODEL" || "$PYTHON" "$HERE/benchmarks/full_size.py" "$MODEL"
DATASET=${DATASET:-$OUT/data}
test -d "$DATASET" || "$PYTHON" - "$DATASET" <<'PYTHON_CODE'
import random, sys
from pathlib import Path
from PIL import Image
from swift_vlrft.demo.data import write_parquet
from swift_vlrft.demo.rows import Row

# Photographs' size, so that an image takes all of MAX_PIXELS.
rng = random.Random(0)
rows = []
for _ in range(64):
    image = Image.effect_noise((1024, 768), 80).convert("RGB")
    box = [rng.randint(0, 400), rng.randint(0, 400), rng.randint(500, 999), rng.randint(500, 999)]
    text = f"<answer>[{{'Position': {box}, 'Confidence': 1}}]</answer>"
    rows.append(Row(image, "Detect all objects belonging to the category 'dog' in the image.", text, ""))
write_parquet(rows, Path(sys.argv[1]))
PYTHON_CODE

nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits --loop-ms=500 > "$OUT/memory.csv" &
WATCH=$!
trap 'kill "$WATCH" 2>/dev/null || true' EXIT
MODEL=$MODEL DATASET=$DATASET OUTPUT_DIR=$OUT/train bash "$RECIPE" \
    --add_version false --max_steps "$STEPS" --save_strategy no "$@"
kill "$WATCH"

"$PYTHON" - "$OUT" <<'PYTHON_CODE'
import json, statistics, sys
from pathlib import Path

out = Path(sys.argv[1])
peaks = {}
for line in (out / "memory.csv").read_text().splitlines():
    if line.count(",") == 1:
        gpu, used = line.split(",")
        peaks[int(gpu)] = max(peaks.get(int(gpu), 0), int(used))
steps = [json.loads(line) for line in (out / "train" / "logging.jsonl").read_text().splitlines()]
seconds = [step["step_time"] for step in steps if "step_time" in step]
print("# measured " + ", ".join(f"GPU {gpu}: {used / 1024:.1f} GiB peak" for gpu, used in peaks.items()))
print(f"#          {statistics.median(seconds[1:] or seconds):.1f} s a step (median of {len(seconds)})")
PYTHON_CODE
