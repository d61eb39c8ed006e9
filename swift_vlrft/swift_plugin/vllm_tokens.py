"""The ids that vLLM may not sample. Every worker loads this class by its name; vLLM 0.32 has two
model runners, whose interfaces differ in the constructor.
"""

from contextlib import suppress
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor

SecondRunners: Any = object
with suppress(ImportError):
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SecondRunners

KEY = "vlrft_forbidden_ids"
"""Where the ids stand in vLLM's ``additional_config``."""


class ForbiddenIds(LogitsProcessor, SecondRunners):  # type: ignore[misc]
    def __init__(self, vllm_config: Any, where: Any, *_: Any) -> None:
        device = getattr(where, "device", where)  # the second runner gives the requests' state
        self.ids = torch.tensor(vllm_config.additional_config[KEY], device=device)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        """Do nothing: the ids are the same for all requests."""

    def apply(self, logits: torch.Tensor, *_: Any) -> torch.Tensor:
        return logits.index_fill_(-1, self.ids, float("-inf"))
