"""Which cases of a test `make test` leaves to `make nightly`."""

from typing import Any

import pytest


def first_now(*cases: Any) -> list[Any]:
    """The first case in `make test`, the others in `make nightly`."""
    others = [case if isinstance(case, tuple) else (case,) for case in cases[1:]]
    return [cases[0], *(pytest.param(*case, marks=pytest.mark.nightly) for case in others)]
