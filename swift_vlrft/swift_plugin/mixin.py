"""What the parts of our trainer (trainer.py) are mixed into: to the type checker, anything."""

from typing import Any

SwiftsTrainer: Any = object
"""ms-swift's GRPO trainer, which only ``VlrftGRPOTrainer`` itself inherits from."""
