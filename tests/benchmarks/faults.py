"""The table of faults in docs/reliability.md, made from the tests that spring them: ``python -m tests.benchmarks.faults``.

A test proves what is required at fault N if its name begins with ``test_fault_N_``; ``_and_M`` or ``_and_fault_M`` in it name
further ones. The first line of its docstring says what it proves.
"""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
# Where it happens, what happens, and what has to come of it.
FAULTS: dict[int, tuple[str, str, str]] = {
    1: ("run", "killed while saving", "the checkpoint before loads; what was left behind is swept"),
    2: ("run", "disk full", "the old file is kept, and the reason said"),
    3: ("run", "bits rot", "noticed by SHA-256; the generation before is taken"),
    4: ("run", "a file of ours truncated, empty or otherwise damaged", "refused, and the last good file named"),
    5: ("run", "code in a pickle", "refused, never run"),
    6: ("run", "an archive that unpacks to far more than its size", "compressed parts are refused"),
    7: ("run", "a torch whose loader can be tricked", "torch 2.10 or newer is required"),
    8: ("run", "SIGTERM", "the step is finished, everything saved, exit status 143, the handler restored"),
    9: ("run", "Ctrl-C", "the first returns the solution so far, the second stops"),
    10: ("run", "resumed with another problem, data, model or dtype", "refused, and the difference shown"),
    11: ("run", "resumed", "the same bits as without the interruption, on the same machine"),
    12: ("run", "generators and sequences of points", "saved, and continued where they were"),
    13: (
        "run",
        "two writers in one directory, or a lock left behind",
        "the second is refused; the lock of the dead is free",
    ),
    14: ("run", "a callback raises", "saved first, then raised"),
    15: ("run", "the place of the history cannot be written", "one warning, and the fit goes on"),
    16: ("CSV", "another delimiter", "refused, `sep=` suggested"),
    17: ("CSV", "decimal comma", "refused, `decimal=` suggested"),
    18: ("CSV", "a trailing comma, fields too many, open quotes", "refused with the line; no value moves"),
    19: ("CSV", "byte-order mark, UTF-16, Latin-1", "the mark is skipped, other encodings named"),
    20: ("CSV", "a column twice", "refused"),
    21: ("CSV", "text, thousands separators, `1.0D+00`, NUL", "refused with the first line and value"),
    22: ("CSV", "blanks, `n/a`, short rows", "refused with counts; masked on request"),
    23: ("CSV", "inf, 1e999", "refused with the lines"),
    24: ("CSV", "no header", "refused: the header is numeric"),
    25: ("CSV", "blanks around names, comment lines", "handled"),
    26: ("CSV", "empty, or a header alone", "refused"),
    27: ("CSV", "truth values, dates, integers beyond 2^53", "a cast that is asked for, or refused"),
    28: ("CSV", "a gzip bomb", "bytes are capped"),
    29: ("CSV", "larger than memory", "the size is estimated first, and another way named"),
    30: ("HDF5", "truncated, empty, damaged, not HDF5", "refused with the path; never a crash or a hang"),
    31: ("HDF5", "the writer was killed", "refused; files of ours are whole or not there"),
    32: ("HDF5", "a dataset that is missing", "the tree is listed, near names are offered"),
    33: ("HDF5", "a group where a dataset was meant", "refused, its datasets named"),
    34: ("HDF5", "big-endian numbers", "converted"),
    35: ("HDF5", "ragged, texts, compound, empty, packed", "refused with the type"),
    36: ("HDF5", "complex numbers", "refused, or split into two columns"),
    37: ("HDF5", "external links, external storage, virtual datasets", "refused; allowed below a folder"),
    38: ("HDF5", "sources of virtual datasets that are missing", "refused"),
    39: ("HDF5", "links in a circle", "refused"),
    40: ("HDF5", "a declared shape that the file cannot hold", "refused"),
    41: ("HDF5", "a flipped bit", "files of ours have checksums"),
    42: ("HDF5", "open in another program that writes", "refused: in use"),
    43: ("HDF5", "workers of a DataLoader", "each process opens the file once, for itself"),
    44: ("HDF5", "larger than memory", "read when asked for, by whole chunks"),
    45: ("fit", "ReLU under a second derivative", "refused before the first step"),
    46: ("fit", "a residual without the fields, an unknown that appears nowhere", "refused before the first step"),
    47: ("fit", "an output that is detached", "said which"),
    48: ("fit", "a layer that mixes points", "refused: one point is moved, and others answer"),
    49: ("fit", "(n,) against (n, 1)", "shapes are strict"),
    50: ("fit", "no points, a region without points", "refused"),
    51: ("fit", "a wrong name or width", "refused with the right names"),
    52: ("fit", "dtypes or devices that do not agree", "cast in one place, otherwise refused"),
    53: ("fit", "data outside the domain, points that are not finite", "refused with counts"),
    54: ("fit", "a loss that is not finite", "caught before the step; the best state is restored; `diverged`"),
    55: ("fit", "a gradient that is not finite under a finite loss", "the term is named"),
    56: ("fit", "out of memory", "smaller parts and the same sum; otherwise an error"),
    57: ("fit", "points that never change", "drawn anew, and proven to move"),
    58: ("fit", "conditions at odds in a corner", "a warning with place and size"),
    59: ("fit", "a baseline that returns NaN or hangs", "its rates are guarded, its answer checked, its time bounded"),
    60: ("fit", "a baseline that blows up in finite time", "told as a failure, never compared"),
    61: ("fit", "export of derivatives", "exported, and compared with the solution before the file is there"),
}


@dataclass(frozen=True)
class Proof:
    """A test of a fault: the file, the test's name, and what it proves."""

    file: str
    name: str
    line: str


def numbers(name: str) -> list[int]:
    """The faults that the name of a test speaks of."""
    if not re.match(r"test_fault_\d+", name):
        return []
    return [int(each) for each in re.findall(r"(?:^test_fault_|_and_fault_|(?<=\d)_and_)(\d+)", name)]


def proofs(folder: Path = ROOT / "tests") -> dict[int, list[Proof]]:
    """The tests of each fault, by file and place."""
    found: dict[int, list[Proof]] = {number: [] for number in FAULTS}
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            for number in numbers(node.name):
                if number not in FAULTS:
                    raise ValueError(f"{path.name}: {node.name} speaks of fault {number}; there are {len(FAULTS)}")
                doc = (ast.get_docstring(node) or "").strip().split("\n")[0]
                told = doc or re.sub(r"^(_?(and_)?(fault_)?\d+)+_", "", node.name.removeprefix("test_fault_")).replace("_", " ")
                found[number].append(Proof(str(path.relative_to(folder)), node.name, told))
    return found


def table(found: dict[int, list[Proof]]) -> str:
    """The table in Markdown; a fault without a test is marked."""
    lines = ["| # | where | fault | required | proven by |", "|---|---|---|---|---|"]
    for number, (where, fault, required) in FAULTS.items():
        tests = [
            f"{each.line.rstrip('.')} ([{each.file.removesuffix('.py').replace('test_', '')}](../tests/{each.file}))"
            for each in found[number]
        ]
        told = "<br>".join(test.replace("|", "\\|") for test in tests) or "**missing**"
        lines.append(f"| {number} | {where} | {fault} | {required} | {told} |")
    return "\n".join(lines)


def renewed(page: str, found: dict[int, list[Proof]]) -> str:
    """The page with the table as it should be."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(found)}\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """Renew the page; the status is the number of faults without a test."""
    found = proofs()
    PAGE.write_text(renewed(PAGE.read_text(), found))
    missing = [number for number, tests in found.items() if not tests]
    tests = sum(map(len, found.values()))
    print(f"{PAGE.relative_to(ROOT)}: {tests} tests of {len(FAULTS)} faults; without a test: {missing or 'none'}")
    return len(missing)


if __name__ == "__main__":
    sys.exit(main())
