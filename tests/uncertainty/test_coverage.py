"""Intervals hold the truth about as often as they say; ``tests.benchmarks.coverage`` looks at two hundred data sets."""

import pytest

from tests.benchmarks.coverage import PROBLEMS, coverage


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_intervals_hold_the_truth(name):
    table = coverage(name, 6)
    # Six or more draws of probability 0.95: half of them outside happens less than once in a thousand times.
    assert (table["held"] > 0.5).all()
    assert (table["sd z"] < 2.5).all()
