"""Score a validation set with the parsing and scoring of the rewards.

    summary = summarise(read_predictions(Path("runs/eval/predictions.jsonl")))
    summary.metrics["acc50"]      Measure(value=0.83, low=0.79, high=0.87)

swift_plugin/inference.py runs a model, and ``swift_vlrft.evaluate`` does both.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swift_vlrft.evaluation.predictions import Prediction, Predictions, read_predictions
    from swift_vlrft.evaluation.summary import Measure, Summary, summarise

__all__ = ["Measure", "Prediction", "Predictions", "Summary", "read_predictions", "summarise"]


def __getattr__(name: str) -> Any:
    """Import a public name on first access: the command line needs settings.py alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "summary" if name in ("Measure", "Summary", "summarise") else "predictions"
    return getattr(import_module(f"{__name__}.{module}"), name)
