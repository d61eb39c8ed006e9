"""The fuzzers of `make fuzz` on their first inputs: always the same."""

import pytest
from fuzz.run import NAMES, Fuzzer, target

INPUTS = {"rewards": 4000, "completions": 1000, "predictions": 3000}
INPUTS |= {"data": 100, "images": 100, "recipes": 20}


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_a_fixed_budget_of_random_input(name, tmp_path):
    one = Fuzzer(target(name), 1, tmp_path / "work", failed_to=tmp_path / "failed")
    one.run(600, most=INPUTS[name])
    assert not one.failures, (one.failures[0].parent / "error.txt").read_text()
    assert one.inputs >= INPUTS[name]
