"""Two environment variables, read where the trainer is chosen and made.

VLRFT_SHARED_PREFIX=1           each prompt and image of a micro-batch once; 0 or unset: off
VLRFT_SHARED_PREFIX_CACHE=512   MiB of image features kept for one generation batch; 0: none

And what the memory planner has to know of it without importing torch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SWITCH = "VLRFT_SHARED_PREFIX"
CACHE = "VLRFT_SHARED_PREFIX_CACHE"
DEFAULT_MIB = 512
LOGPS_PART = 128
"""Tokens whose log-probabilities are taken at a time; chunk of TRL's entropy_from_logits."""


def switched_on(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether shared prefixes are asked for; ValueError says what the variable may hold."""
    value = environment.get(SWITCH, "").strip().lower()
    if value in ("", "0", "false", "no", "off"):
        return False
    if value in ("1", "true", "yes", "on"):
        return True
    raise ValueError(f"{SWITCH}={value}: neither on nor off. Set it to 1 or to 0.")


def cache_bytes(environment: Mapping[str, str] = os.environ) -> int:
    """Bytes of image features to keep; ValueError says what the variable may hold."""
    value = environment.get(CACHE, "").strip() or str(DEFAULT_MIB)
    if not value.isdecimal():
        raise ValueError(
            f"{CACHE}={value}: not a whole number of MiB. "
            f"{DEFAULT_MIB} is the default, 0 keeps none."
        )
    return int(value) << 20
