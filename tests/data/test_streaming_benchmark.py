"""What `python -m tests.benchmarks.streaming` measures, on a file of five megabytes."""

import sys

import h5py
import numpy as np
import pytest
from benchmarks import streaming


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("streaming") / "measured.h5"
    streaming.write(path, 0.005)
    return path


def test_the_file_is_as_large_as_it_is_said_to_be(path):
    assert path.stat().st_size == pytest.approx(5e6, rel=0.3)
    with h5py.File(path) as file:
        assert all(file[name].fletcher32 for name in streaming.COLUMNS)
        assert np.isfinite(file["u"][...]).all()


def test_both_ways_read_every_row(path):
    for measure in (streaming.by_h5py, streaming.by_stream):
        found = measure(path, 0)
        assert found["gigabytes_a_second"] > 0
        assert found["seconds"] > 0


def test_training_tells_how_long_it_waited(path):
    found = streaming.by_training(path, 0, 0.2)
    assert 0 <= found["waiting"] < 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_takes_too_much_memory_is_ended(path):
    assert "failed" in streaming.capped("stream", path, 1, 0.02, 1.0)
