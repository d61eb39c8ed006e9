"""The environment variable of shared prefixes, read when the trainer is created.

VLRFT_SHARED_PREFIX=1       each prompt and image of a micro-batch once; 0 or unset: off

And two constants for the memory planner, which does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping

from swift_vlrft.files.environment import is_on

SWITCH = "VLRFT_SHARED_PREFIX"
KEPT = 512 << 20
"""The most bytes of image features that are kept for one generation batch."""
LOGPS_PART = 128
"""Tokens per chunk of log-probabilities, as in TRL's entropy_from_logits."""


def switched_on(environment: Mapping[str, str] | None = None) -> bool:
    """Say whether shared prefixes are on; ValueError says what the variable may hold."""
    return is_on(SWITCH, environment)
