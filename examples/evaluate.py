"""An evaluation from Python: what `vlrft eval` prints, as values.

    python examples/evaluate.py runs/demo/grpo/checkpoint-60 runs/demo/data classification

Answers and summary are written to runs/eval/MODEL-DATASET; a run that was ended goes on there.
"""

import sys

from swift_vlrft import evaluate


def main(model, dataset, task):
    summary = evaluate(model, dataset, task, max_tokens=64)
    for name, metric in summary.metrics.items():
        print(f"{name:24} {metric.value}  95 %: {metric.low} to {metric.high}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError) as error:  # an unknown task, a missing folder: one line says it
        sys.exit(f"error: {error}")
