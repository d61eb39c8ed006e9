"""The arithmetic of the comparison, against plain formulas."""

import math

import pytest
from agreement_rows import row
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_vlrft.agreement.figures import figures, noise, of_rows

LOGPS = st.floats(-30, 0)
PAIRS = st.lists(st.lists(st.tuples(LOGPS, LOGPS), max_size=5), max_size=4)


@settings(max_examples=50)
@given(PAIRS)
def test_figures_are_those_of_the_formulas(rows):
    result = figures([[a for a, _ in r] for r in rows], [[b for _, b in r] for r in rows])
    pairs = [pair for r in rows for pair in r]
    if not pairs:
        assert result is None
        return
    sizes = sorted(abs(b - a) for a, b in pairs)
    # ms-swift clips alike (grpo_trainer.py: _compute_rollout_offpolicy_metrics).
    clipped = [min(20, max(-20, b - a)) for a, b in pairs]
    assert result.tokens == len(pairs)
    assert math.isclose(result.mean, sum(sizes) / len(sizes), abs_tol=1e-12)
    assert result.worst == sizes[-1] and result.p99 in sizes
    kl = sum(math.exp(r) - 1 - r for r in clipped) / len(clipped)
    assert math.isclose(result.kl, kl, rel_tol=1e-6, abs_tol=1e-9) and result.kl > -1e-9
    beyond = sum(not math.log(0.5) <= r <= math.log(2) for r in clipped) / len(clipped)
    assert result.beyond_two == pytest.approx(beyond)


def test_the_worst_token_has_its_place_and_text_and_may_be_no_number():
    rows = [row([-1.0, -5.0], [-1.1, -5.0]), row([-2.0], [-2.5], place="row 7")]
    assert of_rows(rows).worst_at == "row 7, token 1 't0'"
    no_number = of_rows([row([-1.0, -2.0], [-1.0, math.nan])])
    assert math.isinf(no_number.worst) and "token 2 't1'" in no_number.worst_at


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
