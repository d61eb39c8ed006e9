"""Score a validation set with the parsing and scoring of the rewards.

    summary = summarise(read_predictions(Path("runs/eval/predictions.jsonl")))
    summary.metrics["acc50"]      Measure(value=0.83, low=0.79, high=0.87)

swift_plugin/inference.py runs a model, and ``swift_vlrft.evaluate`` does both.
"""

from swift_vlrft.evaluation.predictions import Prediction, Predictions, read_predictions
from swift_vlrft.evaluation.summary import Measure, Summary, summarise

__all__ = ["Measure", "Prediction", "Predictions", "Summary", "read_predictions", "summarise"]
