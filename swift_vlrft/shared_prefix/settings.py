"""The two environment variables of shared prefixes, read when the trainer is created.

VLRFT_SHARED_PREFIX=1           each prompt and image of a micro-batch once; 0 or unset: off
VLRFT_SHARED_PREFIX_CACHE=512   MiB of image features kept for one generation batch; 0: none

And a constant for the memory planner, which does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping

from swift_vlrft.files.environment import is_on, number

SWITCH = "VLRFT_SHARED_PREFIX"
CACHE = "VLRFT_SHARED_PREFIX_CACHE"
LOGPS_PART = 128
"""Tokens per chunk of log-probabilities, as in TRL's entropy_from_logits."""


def switched_on(environment: Mapping[str, str] | None = None) -> bool:
    """Say whether shared prefixes are on; ValueError says what the variable may hold."""
    return is_on(SWITCH, environment)


def cache_bytes(environment: Mapping[str, str] | None = None) -> int:
    """Return the bytes of image features to keep; ValueError says what the variable may hold."""
    return number(CACHE, environment) << 20
