"""An evaluation from Python: what `vlrft eval` prints, as values.

python evaluate.py runs/demo/grpo/checkpoint-100 runs/demo/data/held_out classification
"""

import sys

from swift_vlrft import evaluate

if __name__ == "__main__":
    model, dataset, task = sys.argv[1:4]
    summary = evaluate(model, dataset, task, out="runs/eval/example", max_tokens=64)
    for name, metric in summary.metrics.items():
        print(f"{name:24} {metric.value}  95 %: {metric.low} to {metric.high}")
