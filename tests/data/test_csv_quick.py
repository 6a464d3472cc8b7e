"""Data lines that are parsed as they stand give what they give one by one, or are cut into lines."""

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

import sciml
from sciml.data.csv import _File
from sciml.errors import DataError

CELLS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**54), 2**54).map(str),
    st.sampled_from(["", " 1", "2 ", "nan", "inf", "1e999", "x", '"3"', "True", "# 4", "1,2", "1.0D+00", "\t5", "0x10", "1_0"]),
)
ODDLY = st.lists(st.lists(CELLS, min_size=1, max_size=4).map(",".join), min_size=1, max_size=6)


def outcome(read):
    try:
        table = read()
    except DataError as error:
        return str(error)
    return table.to_pandas().to_dict("list")


@pytest.fixture
def by_line(monkeypatch):
    """The files whose data lines had to be looked at one by one."""
    seen, each_line = [], _File._each_line
    monkeypatch.setattr(_File, "_each_line", lambda file: seen.append(file.path) or each_line(file))
    return seen


@settings(max_examples=150, deadline=None)
@given(lines=ODDLY, ending=st.sampled_from(["\n", "\r\n", "\n\n"]), missing=st.sampled_from(["error", "mask"]))
def test_both_ways_agree(lines, ending, missing, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "data.csv"
    path.write_bytes(ending.join(["# c", "t,u", *lines]).encode())
    with pytest.MonkeyPatch.context() as patch:
        both = [outcome(lambda: sciml.read_csv(path, missing=missing))]
        patch.setattr(_File, "_plain", lambda *_: None)
        both.append(outcome(lambda: sciml.read_csv(path, missing=missing)))
    assert repr(both[0]) == repr(both[1])


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_plain_lines_are_parsed_as_they_stand(write, by_line, ending):
    values = np.random.default_rng(0).normal(size=(20_000, 3))
    body = ending.join(",".join(map(repr, row)) for row in values.tolist())
    path = write("\ufeff" + ending.join(["# by hand", "", "t, x ,u", body]))
    assert len(path.read_bytes()) > 4 * 2**18
    assert np.array_equal(sciml.read_csv(path, columns=["x", "u"])["u"], values[:, 2])
    assert np.array_equal(sciml.read_csv(path)["x"], values[:, 1])
    assert not by_line


@pytest.mark.parametrize("tail", ["\r1,2\n", '"1",2\n', "1,2 # odd\n", "1,2,3\n1\n", "1,\n"])
@pytest.mark.parametrize("columns", [None, ["t"]])
def test_odd_ends_of_long_files_are_left_to_the_careful_way(write, by_line, tail, columns):
    path = write("t,u\n" + "0.5,1.5\n" * 40_000 + tail)
    found = outcome(lambda: sciml.read_csv(path, columns=columns))
    if tail == "1,\n" and columns is None:
        # The row is complete, and its last value is missing.
        assert "column 'u' has 1 missing value(s), in line(s) 40002" in found
    else:
        assert by_line


def test_a_large_file_takes_little_longer_than_with_pandas(tmp_path):
    n, path = 200_000, tmp_path / "large.csv"
    rng = np.random.default_rng(0)
    pd.DataFrame({"t": np.linspace(0, 1, n), "x": rng.normal(size=n), "u": rng.normal(size=n)}).to_csv(path, index=False)

    def seconds(read):
        start = time.process_time()
        read(path)
        return time.process_time() - start

    pairs = [(seconds(sciml.read_csv), seconds(pd.read_csv)) for _ in range(5)]
    assert min(ours for ours, _ in pairs) < 2 * min(theirs for _, theirs in pairs)


def test_every_float_is_read_to_the_last_bit(write, by_line):
    bits = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    values = bits[np.isfinite(bits)]
    path = write("u\n" + "\n".join(map(repr, values.tolist())))
    assert sciml.read_csv(path)["u"].tobytes() == values.tobytes()
    assert not by_line
    # More digits than a float64 has are rounded to the nearest one.
    digits = [f"{value:.25e}" for value in values[:2000]]
    assert (
        sciml.read_csv(write("u\n" + "\n".join(digits)))["u"].tobytes() == np.array([float(each) for each in digits]).tobytes()
    )
