"""``SwiftsTrainer`` is what the parts of our trainer are mixed into: to mypy, anything."""

from typing import Any

SwiftsTrainer: Any = object
"""ms-swift's GRPO trainer, which only ``VlrftGRPOTrainer`` itself inherits from."""
