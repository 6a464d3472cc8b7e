"""CSV: truth values, dates, packed files, files larger than memory (faults 27 to 29), units and groups."""

import gzip

import numpy as np
import pytest

import sciml
from sciml.errors import DataError

RUNS = "t,x,run\n0,100,a\n1,200,a\n2,300,b\n"


def refused(path, words, **options):
    with pytest.raises(DataError, match=words) as caught:
        sciml.read_csv(path, **options)
    return str(caught.value)


def test_fault_27_truth_values_and_dates_need_a_cast(write):
    """Truth values and dates are numbers when a cast says how, otherwise refused."""
    path = write("day,on\n2020-01-01,True\n2020-01-02T12:00,False\n")
    refused(path, "'2020-01-01' in column 'day' is not a number")
    refused(path, "'True' in column 'on' is not a number", columns=["on"])
    table = sciml.read_csv(path, casts={"day": "days since 2020-01-01", "on": "bool"})
    assert table["day"].tolist() == [0.0, 1.5]
    assert table["on"].tolist() == [1.0, 0.0]
    assert dict(table.units) == {"day": "days since 2020-01-01"}
    hours = sciml.read_csv(path, columns={"t": "day"}, casts={"t": "days since 2020-01-01"}, units={"t": "h"})
    assert hours["t"].tolist() == [0.0, 36.0]
    refused(
        write("day\n2020-01-01\n2020-13-01\n"),
        "line 3: '2020-13-01' in column 'day' is not a date",
        casts={"day": "s since 2020"},
    )
    refused(write("on\nTrue\nperhaps\n"), "line 3: 'perhaps' in column 'on' is not a truth value", casts={"on": "bool"})
    refused(write("on\nTrue\n\nFalse\n"), "casts: 'on' needs", casts={"on": "int"})
    refused(path, "casts names 'off', which is not read", casts={"off": "bool"})
    refused(
        write("day,u\n2020-01-01,1\n,2\n"),
        "column 'day' has 1 missing value.*line.s. 3",
        casts={"day": "days since 2020-01-01"},
    )


def test_fault_27_large_integers_beside_others(write):
    """One large integer in a column is found; large decimal numbers are read."""
    body = "t,u\n" + "0,1\n" * 3
    refused(write(body + "1,9007199254740993\n"), r"line 5: 9007199254740993 in column 'u' is an integer beyond 2\^53")
    assert sciml.read_csv(write(body + "1,1.5e300\n"))["u"][3] == 1.5e300


def test_fault_28_gzip_bomb(write):
    """A packed file is unpacked up to a cap, and refused beyond it."""
    bomb = gzip.compress(b"u\n" + b"1\n" * 5_000_000)
    assert len(bomb) < 20_000
    path = write(bomb, "bomb.csv.gz")
    refused(path, r"unpacks to more than 1.* MiB from .*pass largest=<bytes>")
    refused(path, r"needs about .* of memory", largest=2**24, memory=2**20)
    small = write(gzip.compress(b"t,u\n0,1\n") + gzip.compress(b"1,2\n"), "two.csv.gz")
    assert sciml.read_csv(small)["u"].tolist() == [1.0, 2.0]
    refused(write(small.read_bytes()[:15], "cut.csv.gz"), "cut short|damaged")
    refused(write(b"\x1f\x8b" + b"\0" * 30, "bad.csv.gz"), "damaged")


def test_fault_29_larger_than_memory(write):
    """The memory that reading takes is estimated and compared before it is taken."""
    path = write("t,u\n" + "0.5,1.5\n" * 1000)
    message = refused(path, "needs about .* of memory, and 9.766 KiB may be taken", memory=10_000)
    assert "HDF5" in message
    assert len(sciml.read_csv(path, memory=10**6)) == 1000
    refused(path, "memory must be a number of bytes", memory="1 GB")


def test_groups_are_kept_through_group_and_split(write):
    table = sciml.read_csv(write(RUNS), group="run", units={"x": ("cm", "m")})
    assert table.columns == ("t", "x")
    assert table.groups == ("a", "b")
    assert table.group("a")["x"].tolist() == [1.0, 2.0]
    assert dict(table.group("b").units) == {"x": "m"}
    with pytest.raises(DataError, match="no group 'c'; groups: 'a', 'b'"):
        table.group("c")
    refused(write("t,run\n0,a\n1,\n"), "line 3: no value in 'run', which rows are grouped by", group="run")
    refused(write(RUNS), "no column 'Run' to group by.*Did you mean 'run'", group="Run")
    numbered = sciml.read_csv(write("t,run\n0,007\n1,7\n"), group="run")
    assert numbered.groups == ("007", "7")


@pytest.mark.parametrize(
    ("units", "words"),
    [
        ({"x": ("cm", "s")}, r"'cm' cannot be converted to 's': \[length\] is not \[time\]"),
        ({"x": ("cmm", "m")}, "pint does not know the unit 'cmm'"),
        ({"x": "m"}, "does not say in which unit 'x' is"),
        ({"y": ("cm", "m")}, "units names 'y', which is no column"),
        ({"x": ("cm", "m", "km")}, "needs 'm' or"),
        ({"x": 3}, "needs 'm' or"),
    ],
)
def test_units_that_do_not_fit(write, units, words):
    refused(write(RUNS), words, units=units, columns=["t", "x"])


def test_units_with_an_offset(write):
    path = write("T\n0\n100\n")
    assert sciml.read_csv(path, units={"T": ("degC", "K")})["T"].tolist() == [273.15, 373.15]
    assert sciml.read_csv(path, units={"T": ("degC", "degF")})["T"].tolist() == [32.0, 212.0]
    assert sciml.read_csv(path, units={"T": ("W m-2", "kW/m^2")})["T"].tolist() == [0.0, 0.1]
    assert sciml.read_csv(path, units={"T": ("made up", "made up")})["T"].tolist() == [0.0, 100.0]


def test_masked_values_stay_masked(write):
    table = sciml.read_csv(write("T\n\n0\nn/a\n"), units={"T": ("degC", "K")}, missing="mask")
    assert np.array_equal(table["T"], [273.15, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        ("days since 2020-01-01", "hours since 2020-01-02", [-24.0, 0.0, 24.0]),
        ("days since 2020-01-02", "days since 2020-01-01", [1.0, 2.0, 3.0]),
        ("h since 2020-01-01T00:00+02:00", "h since 2020-01-01", [-2.0, -1.0, 0.0]),
        ("days since 0001-01-01", "hours", [0.0, 24.0, 48.0]),
        ("days since 0001-01-01", "hours since 0001-01-01", [0.0, 24.0, 48.0]),
    ],
)
def test_moments_of_zero_are_part_of_a_unit(write, theirs, ours, expected):
    table = sciml.read_csv(write("t\n0\n1\n2\n"), units={"t": (theirs, ours)})
    np.testing.assert_allclose(table["t"], expected, atol=1e-12)


def test_moments_of_zero_that_cannot_be_told(write):
    path = write("t\n0\n1\n")
    refused(path, "does not say from when it counts", units={"t": ("days", "hours since 2020-01-01")})
    refused(path, "'noon' is no date", units={"t": ("days since noon", "hours since 2020-01-01")})
    refused(path, "no date from 1583", units={"t": ("days since 0001-01-01", "days since 2020-01-01")})
    dated = write("day\n2020-01-03\n", "dated.csv")
    hours = {"casts": {"day": "days since 2020-01-01"}, "units": {"day": "hours since 2020-01-02"}}
    assert sciml.read_csv(dated, **hours)["day"].tolist() == [24.0]


@pytest.mark.parametrize("units", ["m", [("t", "s")], {0: "s"}])
def test_units_that_are_no_mapping(write, units):
    refused(write("t\n0\n"), "units maps names of columns", units=units)


def test_fault_19_characters_that_are_none(write):
    """An encoding that decodes to half a character is told, not passed on to a parser that cannot hold it."""
    with pytest.raises(DataError, match="characters that are none in its encoding"):
        sciml.read_csv(write(b"t\ru\n0#1.5\n1+ABw-2.5\n2\t-3e-+3P8\n"), encoding="utf-7")
