"""Command line: ``sciml list``, ``fit``, ``resume``, ``runs``, ``report``, ``baseline``, ``doctor`` and ``serve``."""

from __future__ import annotations

import ast
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from rich.console import Console

import sciml
from sciml import gallery
from sciml._text import listed, whole
from sciml.baselines import baseline as run_baseline
from sciml.data import Table, read as read_file
from sciml.deploy import report_of_run, serve as run_server
from sciml.errors import BaselineError, DataError, FileError, ModelError, ProblemError, SciMLError, SolverError
from sciml.examination import doctor as run_doctor
from sciml.fitting import fit as run_fit
from sciml.gallery import load_problem
from sciml.models import MLP
from sciml.parallel import process_group
from sciml.plots import plot
from sciml.problem import Problem
from sciml.runs import CheckpointEvery, RunDirectory, report
from sciml.runs.checkpoint import RECORD, read_record
from sciml.runs.index import lines_of
from sciml.solution import Solution
from sciml.solvers import LBFGS, Adam, GaussNewton, LeastSquares, SSBroyden
from sciml.studies.profile import profile as run_profile

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

_console = Console()

# What the record of a run keeps of ``sciml fit``, so that it can be resumed.
_COMMAND = ("file", "model", "dtype", "device", "seed", "every", "solver", "data", "points", "seconds", "read")
# What runs of earlier versions do not name.
_LATER = ("seconds", "read")

# Solvers that the command line knows.
_SOLVERS = {each.__name__: each for each in (Adam, LBFGS, SSBroyden, LeastSquares, GaussNewton)}

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:CLASS]",
        help="A Python file with a problem class in it, or a name of the gallery.",
        autocompletion=lambda incomplete: [name for name in gallery.table().index if str(name).startswith(incomplete)],
    ),
]

Data = Annotated[str | None, typer.Option(help="A file of measurements (CSV, HDF5, Parquet, NetCDF, MATLAB).")]

Read = Annotated[str | None, typer.Option(help="Options of sciml.read for the data, as in \"sep=';', columns={'u': 'T'}\".")]

Out = Annotated[Path | None, typer.Option(help="Where to write; runs/<file name> when not given.")]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    """Solve differential equations and fit them to data."""
    if version:
        _console.print(f"sciml {sciml.__version__}", highlight=False)
        raise typer.Exit


@app.command("list")
def list_() -> None:
    """Show the problems of the gallery; each name may stand for FILE."""
    rows = {}
    for name, row in gallery.table().iterrows():
        unknowns = f"; {', '.join(row['unknowns'])}" if row["unknowns"] else ""
        fields = f"{', '.join(row['fields'])} ({', '.join(row['coordinates'])}){unknowns}"
        rows[name] = {"what it is": row["line"], "fields; unknowns": fields, "truth": row["truth"]}
    table = report.table_of(pd.DataFrame.from_dict(rows, orient="index"), "Problems of the gallery", "name")
    table.columns[0].no_wrap, table.columns[1].ratio = True, 1
    _console.print(table)
    _console.print("sciml fit NAME solves one without settings, sciml baseline NAME by a classical method", style="dim")


@app.command()
def fit(
    file: File,
    model: Annotated[str | None, typer.Option(help="A network, as in 'MLP(20, 20)'.")] = None,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of weights and points.")] = 0,
    every: Annotated[float, typer.Option(help="Seconds between checkpoints.")] = 60.0,
    resume: Annotated[bool, typer.Option(help="Continue what the directory holds, if it holds this fit.")] = False,
    solver: Annotated[str | None, typer.Option(help="Solvers in turn, as in 'Adam(500), SSBroyden(1500)'.")] = None,
    profile: Annotated[bool, typer.Option(help="Show where time and memory go, and write trace.json.")] = False,
    distributed: Annotated[int, typer.Option(help="Processes that share the rows of a fit by --solver.")] = 1,
    data: Data = None,
    points: Annotated[int | None, typer.Option(help="The number of points inside.")] = None,
    seconds: Annotated[float | None, typer.Option(help="The budget of time.")] = None,
    read: Read = None,
    out: Out = None,
) -> None:
    """Fit the problem in FILE and write summary.json, solution.pt and fit.png; sciml resume continues it."""
    if distributed != 1 and not process_group.offered():
        raise typer.Exit(_launched(distributed))
    name, kind = gallery.split(file)
    place = str(Path(name).resolve()) if Path(name).exists() else name
    file = place if kind is None else f"{place}:{kind}"
    measured = None if data is None else str(Path(data).resolve())
    values = (file, model, dtype, device, seed, every, solver, measured, points, seconds, read)
    directory = out or Path("runs") / Path(name).stem
    _fit(dict(zip(_COMMAND, values, strict=True)), directory, resume=resume, profiled=profile)


@app.command()
def resume(directory: Annotated[Path, typer.Argument(help="The directory of a run, as in runs/burgers.")]) -> None:
    """Continue a fit that was interrupted, to the same bits as if it had not been."""
    record = read_record(directory)
    if record is None:
        raise FileError(f"{directory} holds no run: there is no {RECORD}; sciml fit FILE --out {directory} begins one")
    command = record.get("command")
    if not isinstance(command, dict):
        raise FileError(
            f"the fit in {directory} was called from Python: call it again the same way, fit(..., out={str(directory)!r}, "
            "resume=True)"
        )
    missing = [name for name in _COMMAND if name not in (*command, *_LATER)]
    if missing:
        raise FileError(f"{directory / RECORD} is damaged: its command lacks {listed(missing)}")
    _fit(command, directory, resume=True)


def _launched(processes: int) -> int:
    """Run this command in several processes that work on one fit; the exit status."""
    whole("distributed", processes, 1, SolverError)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    # One thread each, unless somebody has said otherwise: the launcher would warn of it.
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    return subprocess.call([*launcher, "-m", "sciml.cli", *sys.argv[1:]], env=environment)


def _read(path: str | None, options: str | None) -> Any:
    """A file of measurements, if one is named, by options of its reader in text; nothing but literals is evaluated."""
    if path is None and options is None:
        return None
    try:
        if path is None:
            raise ValueError("there is no --data")
        named = {} if options is None else _called(ast.parse(f"dict({options})", mode="eval").body, {"dict": dict})
        if "path" in named:
            raise ValueError("the path is that of --data")
    except (SyntaxError, ValueError, TypeError) as error:
        raise DataError(f"{error}; --read is written like \"sep=';', columns={{'u': 'T'}}\"; given: {options!r}") from error
    return read_file(path, **named)


def _compared(problem: Problem, solution: Solution, run: RunDirectory, data: Table | None) -> None:
    """Show and write a solution with the SciPy answer beside it, for which nobody waits who has pressed Ctrl-C."""
    classical = None
    try:
        if solution.status != "interrupted":
            _say("the same problem by SciPy ...", "dim")
            classical = run_baseline(problem, data)
    except BaselineError as error:
        _say(f"no SciPy answer beside it, and no comparison made: {error}", "dim")
    except KeyboardInterrupt:
        _say("no SciPy answer beside it: interrupted", "dim")
    _show(solution, classical)
    _write(solution, classical, run)


def _fit(command: dict[str, Any], directory: Path, *, resume: bool, profiled: bool = False) -> None:
    if process_group.offered():
        with process_group.joined():
            return _fit(command, directory, resume=resume, profiled=profiled)
    problem, model, dtype = _problem(command["file"]), command["model"], command["dtype"]
    if dtype not in ("float64", "float32"):
        raise ModelError(f"dtype must be float64 or float32; given: {dtype!r}")
    solver = command["solver"]
    # Of several processes the first one writes.
    opened = RunDirectory(directory, command=command) if process_group.first() else contextlib.nullcontext(directory)
    with opened as run:
        how: dict[str, Any] = {
            "data": _read(command["data"], command.get("read")),
            "solver": None if solver is None else parse_solvers(solver),
            "points": command["points"],
            "seconds": command.get("seconds"),
            "dtype": getattr(torch, dtype),
            "device": command["device"],
            "seed": command["seed"],
            "out": run,
            "checkpoint": CheckpointEvery(command["every"]),
            "resume": resume,
            "progress": True,
        }
        network = None if model is None else parse_model(model)
        if profiled:
            found = run_profile(problem, network, trace=directory / "trace.json", **how)
            _say(repr(found))
            solution = found.solution
        else:
            solution = run_fit(problem, network, **how)
        if isinstance(run, Path):
            raise typer.Exit(0)
        with process_group.alone():
            _compared(problem, solution, run, how["data"])
    raise typer.Exit(0 if solution.success else 1)


@app.command()
def baseline(
    file: File,
    tolerance: Annotated[float, typer.Option(help="Relative accuracy aimed at.")] = 1e-6,
    data: Data = None,
    read: Read = None,
    out: Out = None,
) -> None:
    """Solve the problem in FILE by SciPy."""
    problem = _problem(file)
    solution = run_baseline(problem, _read(data, read), tolerance=tolerance)
    _show(solution, None)
    if out is not None:
        with RunDirectory(out) as run:
            report.write(solution, run)
            _write(solution, None, run)
    raise typer.Exit(0 if solution.success else 1)


@app.command()
def runs(
    directory: Annotated[Path, typer.Argument(metavar="[DIRECTORY]", help="The folder of runs, or of one run.")] = Path("runs"),
) -> None:
    """Show the runs in DIRECTORY: their state, steps, loss on held-out rows, seconds, and when they last wrote (UTC)."""
    found = sciml.runs.table(directory)
    heads = ("name", "problem", "state", "steps", "held-out", "seconds", "when (UTC)", "size", "note")
    frame = pd.DataFrame(lines_of(found), columns=heads)
    # An empty column leaves its room to the others; in a narrow terminal the size and seconds go first.
    narrow = ["seconds", "size"] if _console.width < 100 else []
    frame = frame.drop(columns=narrow if frame["note"].any() else [*narrow, "note"])
    table = report.table_of(frame.set_index("name"), f"Runs in {directory}", "name")
    for column in table.columns:
        column.justify = "right" if column.header in ("steps", "held-out", "seconds", "size") else "left"
        column.no_wrap = column.header not in ("name", "problem", "note")
    _console.print(table)
    if found["state"].isin(["unfinished", "interrupted"]).any():
        _console.print("sciml resume DIRECTORY/NAME continues one that is unfinished or interrupted", style="dim")


@app.command("report")
def report_(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run, as in runs/burgers.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; report.html in the run when not given.")] = None,
    problem: Annotated[
        str | None, typer.Option(help="FILE[:CLASS] of the problem, where the run was begun from Python.")
    ] = None,
) -> None:
    """Write a report of a run: one HTML file with the mathematics, the answer and what vouches for it."""
    path = directory / "report.html" if out is None else out
    report_of_run(directory, path, _problem_of(directory, problem), overwrite=True)
    _say(f"report    {path}")


@app.command("serve")
def serve_(
    path: Annotated[Path, typer.Argument(metavar="RUN_OR_FILE", help="The directory of a run, or a saved solution (.pt).")],
    port: Annotated[int, typer.Option(help="Where to listen.")] = 8000,
    host: Annotated[str, typer.Option(help="The address; only this machine can reach the default.")] = "127.0.0.1",
    token: Annotated[str | None, typer.Option(envvar="SCIML_TOKEN", help="What requests must bear.")] = None,
    points: Annotated[int, typer.Option(help="The most points of a request.")] = 100_000,
    problem: Annotated[str | None, typer.Option(help="FILE[:CLASS] of the problem, if it holds conditions exactly.")] = None,
) -> None:
    """Serve a solution over HTTP: POST /evaluate, GET /health, the OpenAPI page at /docs."""
    known = _problem_of(path, problem) if path.is_dir() else None if problem is None else load_problem(problem)
    run_server(path, port=port, host=host, token=token, points=points, problem=known)


@app.command()
def doctor(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE[:CLASS]", help="A problem, a saved solution (.pt), or the directory of a run."),
    ],
    model: Annotated[str | None, typer.Option(help="A network, as in 'MLP(20, 20)'.")] = None,
    problem: Annotated[str | None, typer.Option(help="FILE[:CLASS] of the problem of a solution or run.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights and points.")] = 0,
) -> None:
    """Report mistakes, how gradients flow, and how well rows determine parameters; nothing is trained."""
    saved = Path(file).is_dir() or file.endswith(".pt")
    checkup = run_doctor(
        Path(file) if saved else _problem(file),
        None if model is None else parse_model(model),
        problem=None if problem is None else _problem(problem),
        seed=seed,
    )
    for each in checkup.sentences:
        _say(f"• {each}")
    for title, meaning, frame in checkup.tables():
        _console.print(report.table_of(frame, title, meaning=meaning))
    wrong = checkup.findings["severity"].isin(["fatal", "error"]).any() or len(checkup.broken) > 0
    raise typer.Exit(1 if wrong else 0)


def parse_model(text: str) -> MLP:
    """A network from text such as ``MLP(20, 20, activation="sin")``; nothing but literals is evaluated."""
    try:
        return _called(ast.parse(text, mode="eval").body, {"MLP": MLP})
    except ModelError:
        raise
    except (SyntaxError, ValueError, TypeError) as error:
        raise ModelError(f"a model is written like MLP(32, 32, activation='gelu'); given: {text!r}") from error


def parse_solvers(text: str) -> list[Any]:
    """Solvers from text such as ``Adam(500), LBFGS(1000)``; nothing but literals is evaluated."""
    try:
        found = ast.parse(text, mode="eval").body
        return [_called(each, _SOLVERS) for each in (found.elts if isinstance(found, ast.Tuple | ast.List) else [found])]
    except SolverError:
        raise
    except (SyntaxError, ValueError, TypeError) as error:
        raise SolverError(
            f"solvers are written like Adam(500), LBFGS(1000), and may be {listed(sorted(_SOLVERS))}; given: {text!r}"
        ) from error


def _called(call: ast.AST, known: dict[str, Any]) -> Any:
    """What a call of something known gives, with literals for arguments."""
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in known):
        raise ValueError(f"not a call of {listed(known)}")
    options: dict[str, Any] = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    return known[call.func.id](*[ast.literal_eval(each) for each in call.args], **options)


def _problem_of(directory: Path, problem: str | None) -> Problem | None:
    """The problem of a run: the one named, or that of the command that began it; None where it was begun from Python."""
    if problem is None and (record := read_record(directory)) is not None:
        command = record.get("command")
        problem = command.get("file") if isinstance(command, dict) else None
    return None if problem is None else load_problem(problem)


def _say(text: str, style: str = "") -> None:
    """Print a text as it is, once whatever the number of processes."""
    if not process_group.first():
        return
    _console.print(text, style=style, highlight=False, markup=False)


def _problem(file: str) -> Problem:
    problem = load_problem(file)
    _say(f"{type(problem).__name__} from {gallery.split(file)[0]}")
    return problem


def _show(solution: Solution, other: Solution | None) -> None:
    _console.print()
    if len(solution.unknowns):
        _console.print(report.unknowns_table(solution, other))
    certificate = solution.residuals[["rms", "max", "relative", "points"]]
    _console.print(report.table_of(certificate, "residuals on fresh points", "term", ".2e"))
    if solution.problem is not None and solution.problem.has_reference:
        for each in [solution] if other is None else [solution, other]:
            errors = ", ".join(f"{field} {error:.2e}" for field, error in each.error().items())
            _say(f"relative L2 error, {report.short_name(each)}: {errors}")
    if solution.estimate:
        _say(solution.estimate)
    for choice in solution.choices:
        _say(choice, "dim")
    outcome, style = ("success", "") if solution.success else ("not a success", "bold red")
    _say(f"{outcome} in {solution.seconds:.1f} s: {solution.message}", style)


def _write(solution: Solution, other: Solution | None, run: RunDirectory) -> None:
    """The picture, and where everything is."""
    try:
        run.write("fit.png", report.png(plot(solution, other)))
    except ProblemError as error:
        _say(f"no picture: {error}", "dim")
    for name, file in (("summary", report.SUMMARY), ("solution", report.SOLUTION), ("picture", "fit.png")):
        if run.exists(file):
            path = run.path / file
            shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            _console.print(f"{name:<9} {shown}", highlight=False, markup=False, soft_wrap=True)


def main() -> None:
    """Run the command line; errors of ours are one sentence on standard error and exit status 2."""
    try:
        app()
    except SciMLError as error:
        Console(stderr=True).print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
