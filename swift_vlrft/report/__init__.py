"""One page that shows what a run did: curves, evaluations, and the answers that changed.

vlrft report runs/demo/grpo --eval runs/demo/eval/before --eval runs/demo/eval/after
"""

from swift_vlrft.report.page import write_report

__all__ = ["write_report"]
