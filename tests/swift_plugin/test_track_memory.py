"""Peaks between two looks, on what a card held second by second while a recipe ran."""

import csv
import threading
from pathlib import Path

import pytest

from swift_vlrft.swift_plugin.track_memory import PeakMemory

pytestmark = pytest.mark.slow  # ms-swift is imported

# An H100, qwen2_5_vl_3b/detection_lora_1x24g with utilization 0.3 and batch 8 x 4, by nvidia-smi.
CURVE = Path(__file__).with_name("h100_lora8.csv")
PHASES = {"vLLM start": (0, 55), "sync and rollout": (55, 73), "training": (73, 90)}


def test_a_peak_that_no_phase_ends_on_belongs_to_the_phase_it_fell_into():
    rows = [(int(second), int(mib)) for second, mib in list(csv.reader(CURVE.open()))[1:]]
    at, last, seen = 0, 1, threading.Event()

    def used():
        nonlocal at
        seen.set()
        second, mib = rows[at]
        at = min(at + 1, last - 1)
        return mib

    sampled = PeakMemory(used, seconds=0)
    peaks = {}
    for phase, (start, end) in PHASES.items():
        inside = [n for n, (second, _) in enumerate(rows) if start <= second < end]
        with sampled.lock:
            at, last, sampled.peak = inside[0], inside[-1] + 1, 0
        while at < last - 1:  # the thread looks; a busy machine only makes it later
            seen.clear()
            seen.wait(10)
        peaks[phase] = sampled.take()
    sampled.ended.set()
    assert peaks == {"vLLM start": 26143, "sync and rollout": 27087, "training": 13093}
