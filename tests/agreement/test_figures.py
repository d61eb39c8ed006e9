"""The arithmetic of the comparison, against plain formulas."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agreement_rows import row

from swift_vlrft.agreement.figures import figures, noise, of_rows

LOGPS = st.floats(-30, 0)
PAIRS = st.lists(st.lists(st.tuples(LOGPS, LOGPS), max_size=5), max_size=4)


@given(PAIRS)
def test_figures_are_those_of_the_formulas(rows):
    found = figures([[a for a, _ in r] for r in rows], [[b for _, b in r] for r in rows])
    pairs = [pair for r in rows for pair in r]
    if not pairs:
        assert found is None
        return
    sizes = sorted(abs(b - a) for a, b in pairs)
    # ms-swift clips alike (grpo_trainer.py: _compute_rollout_offpolicy_metrics).
    clipped = [min(20, max(-20, b - a)) for a, b in pairs]
    assert found.tokens == len(pairs)
    assert math.isclose(found.mean, sum(sizes) / len(sizes), abs_tol=1e-12)
    assert found.worst == sizes[-1] and found.p99 in sizes
    kl = sum(math.exp(r) - 1 - r for r in clipped) / len(clipped)
    assert math.isclose(found.kl, kl, rel_tol=1e-6, abs_tol=1e-9)
    assert found.kl > -1e-9
    beyond = sum(not math.log(0.5) <= r <= math.log(2) for r in clipped) / len(clipped)
    assert found.beyond_two == pytest.approx(beyond)


def test_a_value_that_is_no_number_is_the_worst():
    found = of_rows([row([-1.0, -2.0], [-1.0, math.nan])])
    assert math.isinf(found.worst) and "token 2 't1'" in found.worst_at


def test_the_worst_token_has_its_place_and_text():
    rows = [row([-1.0, -5.0], [-1.1, -5.0]), row([-2.0], [-2.5], place="row 7")]
    assert of_rows(rows).worst_at == "row 7, token 1 't0'"


def test_rows_without_log_probabilities_are_left_out():
    assert of_rows([row([], [-1.0])]) is None
    assert of_rows([row([-1.0, -2.0], [-1.0])]) is None


def test_the_noise_is_the_larger_of_two_and_no_less_than_a_rounding():
    of_type = row([-12.0], [-12.0], again=[-12.0], rounded=[-12.0])
    assert noise([of_type], 2.0**-7).mean == 0.0625 / 4  # bfloat16 around 12
    assert noise([of_type], 2.0**-23).mean < 1e-6
    apart = row([-12.0], [-12.0], again=[-12.5], rounded=[-12.25])
    assert noise([apart], 2.0**-7).mean == 0.5
    assert noise([row([-1.0], [-1.0])], 2.0**-7) is None
