"""Score a validation set with the parsing and scoring of the rewards.

    average_precision(completions, solutions)["AP50"]            0.74
    summary = summarise(read_predictions(Path("runs/eval/predictions.jsonl")))
    summary.metrics["acc50"]      Measure(value=0.83, low=0.79, high=0.87)

swift_plugin/inference.py runs a model, and ``swift_vlrft.evaluate`` does both.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swift_vlrft.evaluation.lists import average_precision, precision_recall_f1, task_metrics
    from swift_vlrft.evaluation.predictions import Prediction, Predictions, read_predictions
    from swift_vlrft.evaluation.summary import Measure, Summary, summarise

_MODULES = {
    "lists": ("average_precision", "precision_recall_f1", "task_metrics"),
    "predictions": ("Prediction", "Predictions", "read_predictions"),
    "summary": ("Measure", "Summary", "summarise"),
}
__all__ = ["Measure", "Prediction", "Predictions", "Summary", "average_precision"]
__all__ += ["precision_recall_f1", "read_predictions", "summarise", "task_metrics"]


def __getattr__(name: str) -> Any:
    """Import a public name on first access: the command line needs settings.py alone."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
