"""Compute each prompt of a micro-batch once, with its images: same results, fewer operations.

    packed = pack(input_ids, attention_mask, position_ids, completion_mask, images)
    logits = forward(model, packed)                 # one row per completion token
    logps, _ = values_of(logits, packed.targets, temperature)
    rows = unpack(logps, completion_mask)

GRPO's G completions of a prompt are G rows that begin alike. ``pack`` finds those rows and lays
them out as one sequence, [prompt][completion 1]...[completion G], every token with the position it
had in its own row; ``attend`` lets a completion see its prompt and itself, never another
completion. Log-probabilities and gradients are those of the separate rows (Prefix Grouper, arXiv
2506.05433); here images are shared too, and a common beginning of the completions counts as part of
the prompt.

Needs torch, transformers and TRL, not ms-swift; ``swift_plugin/trainer.py`` is the trainer on top.
"""
