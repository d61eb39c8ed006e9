"""Flags of older ms-swift versions and what replaces them, up to 4.6.0.

--train_type lora           now --tuner_type, since 4.1.0
--num_infer_workers 1       gone since 3.6.0: --vllm_mode colocate or server
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class Old(msgspec.Struct, frozen=True):
    """ms-swift 4.6.0 with transformers 5 rejects this flag.

    ``now`` is the flag that takes its values; without one, drop it (``drop``) or see ``hint``.
    """

    since: str
    """The version of ms-swift, as found in its releases."""
    now: str | None = None
    hint: str = ""
    drop: bool = False


OLD_FLAGS = msgspec.json.decode(
    Path(__file__).with_name("old_flags.json").read_bytes(), type=dict[str, Old]
)

OF_OTHERS = msgspec.json.decode(
    Path(__file__).with_name("other_flags.json").read_bytes(), type=dict[str, str]
)
"""By names of TRL, verl, OpenRLHF, LLaMA-Factory and EasyR1, the flags of the same meaning."""
