"""The most memory that was alive at once, by PyTorch's own profiler.

peak_of(lambda: model(inputs).sum().backward())     bytes
"""

import gc
from collections.abc import Callable


def peak_of(work: Callable[[], object]) -> int:
    """Bytes of what ``work`` allocated, at the highest point."""
    from torch.profiler import ProfilerActivity, profile

    gc.collect()  # what others left would be counted as released by ``work``
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            work()
    finally:
        gc.enable()
    alive = most = 0
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return most
