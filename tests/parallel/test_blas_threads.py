"""One thread of BLAS for small matrices, given back whatever happens, however blocks overlap."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.linalg  # noqa: F401 (its BLAS is looked for when the first block begins)
import threadpoolctl
import torch

from sciml.parallel.blas_threads import one_blas_thread
from sciml.slabs import nested_dissection


def threads():
    """How many threads each BLAS that is loaded would take."""
    return {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def _several():
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        yield


def test_threads_are_given_back_after_an_error():
    def fails():
        with one_blas_thread():
            assert threads() == {1}
            raise ValueError("within")

    with pytest.raises(ValueError, match="within"):
        fails()
    assert threads() == {3}


OVERLAPPING = """
import threading
import scipy.linalg
import threadpoolctl
from sciml.parallel.blas_threads import one_blas_thread

def threads():
    return {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}

before = threads()
entered, left, over = threading.Event(), threading.Event(), threading.Event()

def first():
    with one_blas_thread():
        assert threads() == {1}
        entered.set()
        left.wait(10)
    over.set()

def second():
    entered.wait(10)
    with one_blas_thread():
        left.set()
        assert over.wait(10)

both = [threading.Thread(target=each) for each in (first, second)]
for each in both:
    each.start()
for each in both:
    each.join()
assert threads() == before, threads()
with one_blas_thread():
    assert threads() == {1}
    with one_blas_thread():
        pass
    assert threads() == {1}
assert threads() == before, threads()
"""


def test_blocks_overlap_in_several_threads():
    """The second begins within the first and ends after it: it must not give back what it found."""
    known = {"OPENBLAS_NUM_THREADS": "3", "OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3"}
    command = [sys.executable, "-c", OVERLAPPING]
    done = subprocess.run(command, env={**os.environ, **known}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("large", "seen"), [(nested_dissection._LARGE, 1), (4, 3)])
def test_large_matrices_are_factored_by_all_threads(large, seen, monkeypatch):
    monkeypatch.setattr(nested_dissection, "_LARGE", large)
    found, original = [], nested_dissection.scipy.linalg.get_lapack_funcs

    def watched(*arguments):
        (potrf,) = original(*arguments)
        return (lambda *given, **named: (found.append(threads()), potrf(*given, **named))[1],)

    monkeypatch.setattr(nested_dissection.scipy.linalg, "get_lapack_funcs", watched)
    matrix = nested_dissection.BlockCholesky([2, 2], np.array([[0, 1]]))
    own = torch.eye(2, dtype=torch.float64).expand(2, 2, 2)
    matrix.factor([(torch.arange(2), torch.arange(2), own)], 1.0)
    assert found
    assert all(each == {seen} for each in found)
    np.testing.assert_allclose(matrix.solve(torch.ones(4, 1, dtype=torch.float64)), 0.5)
    assert threads() == {3}
