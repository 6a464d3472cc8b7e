"""Reading CSV files: faults 16 to 27 of the table of faults, each under its number."""

import numpy as np
import pytest
from conftest import ROOT

import sciml
from sciml.errors import DataError

GOOD = "t,u\n0,1.5\n1,2.5\n"


def refused(path, words, **options):
    with pytest.raises(DataError, match=words) as caught:
        sciml.read_csv(path, **options)
    assert path.name in str(caught.value)


def test_the_measured_file_as_it_arrives():
    pelts = sciml.read_csv(ROOT / "data/lynx_hare/pelts.csv", columns={"t": "Year", "hare": "Hare", "lynx": "Lynx"})
    assert pelts.columns == ("t", "hare", "lynx")
    assert len(pelts) == 21
    assert pelts["hare"][0] == 30.0
    assert pelts["lynx"][-1] == 8.6


def test_every_column_by_default_and_some_by_name(write):
    path = write("t,u,v\n0,1,2\n")
    assert sciml.read_csv(path).columns == ("t", "u", "v")
    assert sciml.read_csv(path, columns=["t", "v"]).columns == ("t", "v")


def test_fault_16_wrong_delimiter(write):
    """A file with another separator is refused, and `sep=` with the right one suggested."""
    refused(write("t;u\n0;1\n"), "pass sep=';'")
    refused(write("t\tu\n0\t1\n"), r"pass sep='\\t'")
    assert sciml.read_csv(write("t;u\n0;1\n"), sep=";")["u"][0] == 1


def test_fault_17_decimal_comma(write):
    """A decimal comma is refused with `decimal=` suggested, and read with it."""
    refused(write("t,u\n0,1,5\n"), r"line 2: 3 values for 2 columns.*decimal=','")
    refused(write("t;u\n0;1,5\n"), "decimal=','", sep=";")
    table = sciml.read_csv(write("t;u\n0;1,5\n1;n/a\n"), sep=";", decimal=",", missing="mask")
    assert table["u"][0] == 1.5
    assert np.isnan(table["u"][1])


def test_fault_18_trailing_comma_and_extra_fields(write):
    """Rows with more values than columns are refused with their line."""
    refused(write("t,u\n0,1,\n1,2,\n"), "line 2: 3 values for 2 columns.*ends with a ','")
    refused(write("t,u\n0,1\n1,2,3\n"), "line 3: 3 values")
    refused(write("t,u,\n0,1,\n"), "column 3 has no name")


def test_fault_19_encodings(write):
    """A byte-order mark is skipped; UTF-16 and Latin-1 are named, and read when named."""
    assert sciml.read_csv(write(b"\xef\xbb\xbf" + GOOD.encode())).columns == ("t", "u")
    refused(write(GOOD.encode("utf-16")), "UTF-16; pass encoding='utf-16'")
    assert sciml.read_csv(write(GOOD.encode("utf-16")), encoding="utf-16")["u"][1] == 2.5
    refused(write("t,Höhe\n0,1\n".encode("latin-1")), "line 1: not utf-8 text.*cp1252")
    assert sciml.read_csv(write("t,Höhe\n0,1\n".encode("latin-1")), encoding="latin-1").columns == ("t", "Höhe")


def test_fault_20_duplicate_columns(write):
    """A name that occurs twice is refused, however blanks stand around it."""
    refused(write("t,u,u\n0,1,2\n"), "'u' occurs more than once")
    refused(write("t,u, u \n0,1,2\n"), "'u' occurs more than once")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("abc", "line 3: 'abc' in column 'u' is not a number"),
        ('"1,000"', "thousands"),
        ("1.0D+00", "Fortran's exponent D"),
        ("1\0", "line 3: a NUL character"),
        ("True", "is not a number"),
        ("2020-01-01", "is not a number"),
    ],
)
def test_fault_21_text_and_fault_27_other_types(write, cell, words):
    """What is no number is refused with its line, value and column."""
    refused(write(f"t,u\n0,1\n1,{cell}\n"), words)


def test_fault_21_only_booleans(write):
    """A column of truth values alone is refused with its first line."""
    refused(write("t,u\n0,True\n1,False\n"), "line 2: 'True' in column 'u' is not a number")


def test_fault_22_missing_values(write):
    """Missing values are refused with count and lines, and masked on request; short rows are refused."""
    path = write("t,u\n0,1\n1,\n2,n/a\n# a comment\n3,4\n")
    refused(path, r"column 'u' has 2 missing value\(s\), in line\(s\) 3, 4; .*missing='mask'")
    table = sciml.read_csv(path, missing="mask")
    assert np.isnan(table["u"]).tolist() == [False, True, True, False]
    refused(write("t,u\n0,1\n1\n"), "line 3: 1 values for 2 columns")


def test_fault_23_infinite_values(write):
    """Infinite values are refused with their lines, masked or not."""
    refused(write("t,u\n0,inf\n1,1e999\n"), r"2 infinite value\(s\), in line\(s\) 2, 3")
    refused(write("t,u\n0,inf\n"), "infinite", missing="mask")


def test_fault_24_no_header(write):
    """A header of numbers is refused."""
    refused(write("0,1.5\n1,2.5\n"), "line 1: the header is numeric")


def test_fault_25_blanks_and_comments(write):
    """Blanks around names and values, comments and blank lines change nothing."""
    path = write("# made by hand\n\n  # twice\n t , u \n 0 ,  1.5\n\n# in between\n1, 2.5  \n")
    table = sciml.read_csv(path)
    assert table.columns == ("t", "u")
    assert table["u"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize(("content", "words"), [("", "is empty"), ("# only\n", "is empty"), ("t,u\n", "no rows")])
def test_fault_26_empty(write, content, words):
    """Nothing, comments alone, or a header alone are refused."""
    refused(write(content), words)


def test_fault_27_integers_that_float64_cannot_hold(write):
    """An integer beyond 2^53 is refused with its line."""
    refused(write("t,u\n0,9007199254740993\n"), r"line 2: .*integer beyond 2\^53")


def test_missing_column_names_near_ones(write):
    refused(
        write("Year,Hare\n0,1\n"),
        "no column 'Hares'; it has 'Year', 'Hare'. Did you mean 'Hare'",
        columns={"t": "Year", "h": "Hares"},
    )


def test_no_such_file(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        sciml.read_csv(tmp_path / "nowhere.csv")


def test_numbers_survive_exactly(write):
    values = np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-100, 100)
    path = write("t,u\n" + "\n".join(f"{row},{value!r}" for row, value in enumerate(values.tolist())))
    assert np.allclose(sciml.read_csv(path)["u"], values, rtol=1e-15, atol=0)


@pytest.mark.parametrize("group", [None, "run"])
def test_fault_21_points_that_separate_thousands(write, group):
    """Beside a decimal comma, a point is refused with its line."""
    path = write("t;u;run\n0;999,5;a.1\n1;1.250;a.1\n2;1.300;b.2\n")
    with pytest.raises(DataError, match=r"line 3: '1\.250' in column 'u' has a point, and decimal=','"):
        sciml.read_csv(path, sep=";", decimal=",", group=group, columns=["t", "u"])
    path = write("t;u;run\n0;999,5;a.1\n1;1250;b.2\n")
    assert sciml.read_csv(path, sep=";", decimal=",", group="run")["u"].tolist() == [999.5, 1250.0]


def test_fault_18_blanks_that_separate_move_no_value(write):
    """Blanks that separate leave every value in its column."""
    table = sciml.read_csv(write("a b c\n1 2 3\n4  5\n"), sep=" ", missing="mask")
    np.testing.assert_array_equal([table[name][1] for name in "abc"], [4.0, np.nan, 5.0])
    refused(write("a b\n 1\n 2\n"), "column 'a' has 2 missing value", sep=" ")
    table = sciml.read_csv(write("a b c\r\n 0.125 -3\r\n-3 4e2 2.5\r\n"), sep=" ", missing="mask")
    np.testing.assert_array_equal([table[name][0] for name in "abc"], [np.nan, 0.125, -3.0])


@pytest.mark.parametrize("rows", ['1,"2\n3,4\n', '1,"2\n3",4\n'])
def test_fault_18_quotes_that_are_not_closed(write, rows):
    """An open quote is refused and does not swallow rows."""
    refused(write("a,b\n" + rows), "are all quotes closed")
