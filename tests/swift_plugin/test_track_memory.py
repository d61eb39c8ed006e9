"""Peaks between two looks belong to the phase that they fell into."""

import threading

import pytest

from swift_vlrft.swift_plugin.track_memory import PeakMemory

pytestmark = pytest.mark.slow  # ms-swift is imported

# MiB in use on an H100 while a recipe ran; no phase ends on its peak.
PHASES = {
    "vLLM start": [529, 9037, 26143, 23917],
    "sync and rollout": [24019, 27087, 5563],
    "training": [8391, 13093, 9471],
}


def test_a_peak_that_no_phase_ends_on_belongs_to_the_phase_it_fell_into():
    left, drained = [0], threading.Event()

    def used():
        if len(left) == 1:
            drained.set()
        return left.pop(0) if len(left) > 1 else left[0]

    sampled, peaks = PeakMemory(used, seconds=0), {}
    for phase, levels in PHASES.items():
        with sampled.lock:
            left[:] = levels
            drained.clear()
        drained.wait(60)  # the thread looks; a busy machine only makes it later
        peaks[phase] = sampled.take()
    sampled.ended.set()
    assert peaks == {phase: max(levels) for phase, levels in PHASES.items()}
