"""Damaged files against the readers: ``python -m tests.benchmarks.fuzzing csv|hdf5|checkpoint|... --seconds 600``.

Each case is a valid file with one to three changes, read in a process of its own with bounded memory and time. A reader may
accept it or refuse it by an error of sciml's; a crash, a hang, memory without bound and any other exception are found, and the
file is kept. A case is made by its reader's name, a seed and its number alone, so that ``--only NUMBER`` runs it once more.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from sciml.data.sandbox import PROBER
from sciml.errors import SciMLError

from .mutations import mutated
from .specimens import READERS, Reader

# Memory beyond what the process has at the start, processor seconds a case, and cases that one process does.
MEMORY = 2 * 2**30
SECONDS = 10.0
LIFETIME = 3000


@dataclass
class Report:
    """What came out.

    Args:
        reader: its name.
        cases: how many were run.
        accepted: how many were read.
        refused: how many were refused, by class of the error.
        found: what must not happen: a kind (``crash``, ``hang``, ``memory``, ``foreign``), the case, what was seen.
        peak: the most bytes that reading one case took beyond those at the start.
        seconds: that all of them took.
    """

    reader: str
    cases: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    found: list[dict[str, Any]] = field(default_factory=list)
    peak: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        kinds = Counter(each["kind"] for each in self.found)
        refused = ", ".join(f"{name} {count}" for name, count in self.refused.most_common())
        lines = [
            f"{self.reader}: {self.cases} cases in {self.seconds:.0f} s, {self.accepted} accepted, "
            f"refused: {refused or 'none'}; "
            f"crashes {kinds['crash']}, hangs {kinds['hang']}, beyond memory {kinds['memory']}, "
            f"foreign exceptions {kinds['foreign']}; peak memory {self.peak / 2**20:.0f} MiB more than at the start"
        ]
        seen: Counter[str] = Counter()
        for each in self.found:
            seen[each["where"]] += 1
            if seen[each["where"]] == 1:
                lines.append(f"  {each['kind']} at case {each['case']}: {each['what']}")
        return "\n".join(lines + [f"  {count} times: {where}" for where, count in seen.items() if count > 1])


def case(name: str, specimens: list[bytes], seed: int, number: int) -> tuple[bytes, random.Random]:
    """The bytes of a case, and the chance by which its reader's options are chosen."""
    chance = random.Random(f"{name}:{seed}:{number}")
    return mutated(chance, specimens, READERS[name].special), chance


def outcome(reader: Reader, path: Path, chance: random.Random) -> dict[str, Any]:
    """Read a file, and say what happened."""
    try:
        reader.read(path, chance)
    except SciMLError as error:
        return {"kind": "refused", "what": type(error).__name__, "message": str(error)}
    except (Exception, RecursionError) as error:
        steps = traceback.extract_tb(error.__traceback__)
        ours = [step for step in steps if "/sciml/" in step.filename] or list(steps)
        # torch says so in words.
        memory = isinstance(error, MemoryError) or "can't allocate memory" in str(error)
        return {
            "kind": "memory" if memory else "foreign",
            "where": f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].name}",
            "what": f"{type(error).__name__}: {str(error)[:300]} at {Path(ours[-1].filename).name}:{ours[-1].lineno}",
        }
    return {"kind": "accepted"}


def _serve(name: str, specimens: list[bytes], seed: int, folder: Path, pipe: Any) -> None:
    """Do the cases whose numbers come through the pipe, until there are no more."""
    # What libraries print about damaged files is not wanted.
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reader = READERS[name]
    # These files are small.
    PROBER.seconds = 1.0
    while (number := pipe.recv()) is not None:
        raw, chance = case(name, specimens, seed, number)
        path = folder / f"case{reader.suffix}"
        path.write_bytes(raw)
        pipe.send("began")
        found = outcome(reader, path, chance)
        found["peak"] = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start)
        pipe.send(found)


def fuzz(name: str, numbers: Iterator[int], seed: int, keep: Path, seconds: float = float("inf")) -> Report:
    """Run cases until time is up.

    Args:
        name: of the reader.
        numbers: of the cases.
        seed: of all of them.
        keep: the folder for files that were not survived.
        seconds: to go on.
    """
    specimens, found, began = READERS[name].specimens(), Report(name), time.monotonic()
    suffix, context = READERS[name].suffix, get_context("fork")
    scratch = Path(tempfile.mkdtemp(prefix="sciml-fuzzing-"))
    process = pipe = None
    try:
        for number in numbers:
            found.seconds = time.monotonic() - began
            if found.seconds > seconds:
                break
            if process is None:
                pipe, other = context.Pipe()
                process = context.Process(target=_serve, args=(name, specimens, seed, scratch, other), daemon=True)
                process.start()
                other.close()
            pipe.send(number)
            result = _awaited(pipe, process)
            found.cases += 1
            found.peak = max(found.peak, result.get("peak", 0))
            if result["kind"] == "accepted":
                found.accepted += 1
            elif result["kind"] == "refused":
                found.refused[result["what"]] += 1
            else:
                keep.mkdir(parents=True, exist_ok=True)
                raw = case(name, specimens, seed, number)[0]
                digest = hashlib.sha256(raw).hexdigest()[:12]
                file = keep / f"{name}-{seed}-{number}-{digest}{suffix}"
                file.write_bytes(raw)
                found.found.append({"case": number, "seed": seed, "file": str(file), **result})
            if result["kind"] in ("crash", "hang", "memory") or found.cases % LIFETIME == 0:
                _end(pipe, process)
                process = None
    finally:
        if process is not None:
            _end(pipe, process)
        shutil.rmtree(scratch, ignore_errors=True)
    return found


def _awaited(pipe: Any, process: Any) -> dict[str, Any]:
    """What the process answers, or how it ended; time counts from the moment when the file is there."""
    began, spent = time.monotonic(), _processor_seconds(process.pid)
    try:
        while True:
            if pipe.poll(0.5):
                answer = pipe.recv()
                if answer != "began":
                    return answer
                began, spent = time.monotonic(), _processor_seconds(process.pid)
            # On a busy machine a second may pass without work.
            elif _processor_seconds(process.pid) - spent > SECONDS or time.monotonic() - began > 6 * SECONDS:
                os.kill(process.pid, signal.SIGKILL)
                return {"kind": "hang", "where": "hang", "what": f"more than {SECONDS:g} s of work"}
    except (EOFError, OSError):
        process.join(10)
        ended = process.exitcode
        what = signal.Signals(-ended).name if ended is not None and ended < 0 else f"exit status {ended}"
        return {"kind": "crash", "where": what, "what": what}


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _end(pipe: Any, process: Any) -> None:
    with contextlib.suppress(OSError):
        pipe.send(None)
    process.join(5)
    if process.is_alive():
        process.kill()
        process.join()
    pipe.close()


def main(arguments: list[str]) -> int:
    """Run what was asked for; the status is the number of readers that did not survive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="+", choices=[*READERS, "all"])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each reader")
    parser.add_argument("--cases", type=int, help="for each reader, instead of seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one case alone, by its number")
    parser.add_argument("--keep", type=Path, help="where files that were not survived go; a temporary folder by default")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    keep = given.keep or Path(tempfile.mkdtemp(prefix="sciml-fuzzing-kept-"))
    failed, reports = 0, []
    for name in READERS if "all" in given.readers else given.readers:
        numbers = range(given.only, given.only + 1) if given.only is not None else range(given.cases or sys.maxsize)
        report = fuzz(name, iter(numbers), given.seed, keep, float("inf") if given.cases else given.seconds)
        failed += bool(report.found)
        reports.append(report)
        if not given.json:
            print(report, flush=True)
    if given.json:
        print(json.dumps([{**vars(each), "text": str(each)} for each in reports]))
    elif failed:
        print(f"files are in {keep}")
    elif given.keep is None:
        keep.rmdir()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
