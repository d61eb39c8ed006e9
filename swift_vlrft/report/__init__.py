"""Show on one page what a run did: curves, evaluations, and the answers that changed.

vlrft report runs/demo/grpo --eval runs/demo/eval/before --eval runs/demo/eval/after
"""
