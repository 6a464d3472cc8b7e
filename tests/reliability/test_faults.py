"""The table of faults in docs/reliability.md is the one that the tests make."""

import pytest
from benchmarks import faults

RENEW = "renew it: python -m tests.benchmarks.faults"


def test_the_table_is_up_to_date():
    page = faults.PAGE.read_text()
    assert page.count(faults.BEGIN) == page.count(faults.END) == 1
    before, after = (text.splitlines() for text in (page, faults.renewed(page, faults.proofs())))
    changed = [line for line in after if line not in before] + [line for line in before if line not in after]
    assert before == after, f"docs/reliability.md does not agree with the tests; {RENEW}\n" + "\n".join(changed[:6])


def test_every_fault_has_a_test():
    missing = [number for number, tests in faults.proofs().items() if not tests]
    assert not missing, f"no test is named test_fault_N_... for N = {missing}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_fault_16_wrong_delimiter", [16]),
        ("test_fault_04_and_05_damaged_files", [4, 5]),
        ("test_fault_21_text_and_fault_27_other_types", [21, 27]),
        ("test_fault_40_and_29_more_than_memory", [40, 29]),
        ("test_fault_60_and_5_points_of_12_and_more", [60, 5]),
        ("test_default_5", []),
    ],
)
def test_names_of_tests_name_their_faults(name, expected):
    assert faults.numbers(name) == expected


def test_a_fault_without_a_test_is_marked_and_one_that_does_not_exist_is_refused(tmp_path):
    (tmp_path / "test_some.py").write_text('def test_fault_16_x():\n    """It | holds."""\n')
    table = faults.table(faults.proofs(tmp_path))
    assert "It \\| holds ([some](../tests/test_some.py))" in table
    assert table.count("**missing**") == len(faults.FAULTS) - 1
    (tmp_path / "test_some.py").write_text("def test_fault_62_x():\n    pass\n")
    with pytest.raises(ValueError, match="speaks of fault 62"):
        faults.proofs(tmp_path)
