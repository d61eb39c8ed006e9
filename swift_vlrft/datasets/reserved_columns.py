"""Further columns of a set reach rewards under their own or other names.

    difficulty    difficulty
    objects       row_objects: ms-swift's template reads a row's ``objects`` as boxes to put in

Training, conversion and checks name them alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_vlrft.datasets.storage import StoredSet

TAKEN = frozenset(
    {
        # What a row of ms-swift's template holds (StdTemplateInputs), its own system turn apart ...
        *("messages", "images", "videos", "audios", "tools", "objects", "label", "channel"),
        "dataset",  # which ms-swift makes the name of the set
        *("margin", "chat_template_kwargs", "mm_processor_kwargs", "extra_kwargs"),
        # ... a sample of its GRPO (GRPOSample) ...
        *("prompt_id", "request_id", "response_token_ids", "response_loss_mask", "extra"),
        *("rollout_logprobs", "finish_reason", "add_eos", "rollout_infos", "routed_experts"),
        *("encoded", "teacher_prompt", "teacher_images", "teacher_messages", "rewards"),
        *("advantages", "is_truncated"),
        # ... and a call of a reward.
        *("completions", "trainer_state", "trajectory_inputs"),
    }
)
TAKEN_BEGINNINGS = ("rejected_", "positive_", "negative_")
"""Columns that begin so become a second conversation of the row (TemplateInputs)."""


def safe_name(column: str) -> str:
    """Return the name under which rewards get a column."""
    taken = column in TAKEN or column.startswith(TAKEN_BEGINNINGS)
    return f"row_{column}" if taken else column


def reserved_notes(stored: StoredSet) -> list[str]:
    """Name the columns that rewards get under another name; ask when all rows were read."""
    if not (taken := sorted(stored.renamed_columns)):
        return []
    names = ", ".join(f"{name} as {safe_name(name)}" for name in taken)
    return [
        f"{stored.path}: rewards get the column{'s' * (len(taken) > 1)} {names}, since ms-swift "
        "uses a column of the first name itself"
    ]
