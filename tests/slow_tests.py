"""Which tests are slow: those marked so, and those of ``slow_tests.txt``, which took more than three seconds on one slow core.

``python -m pytest --record-slow 3`` writes the file anew. ``--minutes 20`` starts none after so many minutes, in an order of
files that differs from day to day, so that all are run sooner or later where time is short. Tests of a file share what it
sets up.
"""

import datetime
import hashlib
import time
from collections import Counter
from pathlib import Path

import pytest

NAMES = Path(__file__).with_suffix(".txt")
_taken = Counter()


def pytest_addoption(parser):
    parser.addoption("--record-slow", type=float, metavar="SECONDS", help="write down which tests took longer")
    parser.addoption("--minutes", type=float, help="begin no test after so many minutes; another order of files every day")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    slow = set(NAMES.read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
    if config.getoption("--minutes") is not None:
        day = str(datetime.date.today())
        items.sort(key=lambda item: hashlib.sha256((day + item.nodeid.split("::")[0]).encode()).digest())


def pytest_sessionstart(session):
    session.config.begun = time.monotonic()


def pytest_runtest_setup(item):
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() - item.config.begun > 60 * minutes:
        pytest.skip("no time is left")


def pytest_runtest_logreport(report):
    # Fixtures are shared: their seconds are those of no one test.
    if report.when == "call":
        _taken[report.nodeid] = report.duration


def pytest_sessionfinish(session):
    least = session.config.getoption("--record-slow")
    if least is not None and not hasattr(session.config, "workerinput"):
        NAMES.write_text("".join(f"{name}\n" for name in sorted(_taken) if _taken[name] > least), encoding="utf-8")
