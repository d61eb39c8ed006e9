"""Did it get better? The rewards' own reading and scoring over a whole validation set.

    found = read_predictions(Path("runs/eval/predictions.jsonl"))
    summary = summarise(found)
    summary.metrics["acc50"]      Measure(value=0.83, low=0.79, high=0.87)

Functions on predictions and gold, which they leave as they are. What asks a model lies in
swift_plugin/inference.py, and ``swift_vlrft.evaluate`` does both.
"""

from swift_vlrft.evaluation.predictions import Prediction, Predictions, read_predictions
from swift_vlrft.evaluation.summary import Measure, Summary, summarise

__all__ = ["Measure", "Prediction", "Predictions", "Summary", "read_predictions", "summarise"]
