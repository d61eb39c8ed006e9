"""Visual reinforcement fine-tuning as an extension of ms-swift."""

__version__ = "0.1.0"
