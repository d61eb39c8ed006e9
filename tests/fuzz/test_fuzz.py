"""The fuzzers of `make fuzz` on their first inputs: always the same."""

import pytest
from fuzz.run import NAMES, fuzz

INPUTS = {"rewards": 4000, "completions": 1000, "data": 100}


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_a_fixed_budget_of_random_input(name, tmp_path):
    inputs, failures = fuzz(name, 1, tmp_path / "work", tmp_path / "failed", most=INPUTS[name])
    assert not failures, (failures[0].parent / "error.txt").read_text()
    assert inputs >= INPUTS[name]
