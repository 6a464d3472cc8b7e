"""Experiment tracking: the numbers of a fit, its pictures, report and solution in MLflow, TensorBoard or Weights & Biases."""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sciml._text import extra, listed
from sciml.errors import SciMLError, SolverError, TrackerWarning
from sciml.runs.report import png, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sciml.solution import Solution
    from sciml.solvers import Report


class Tracker:
    """Experiment tracker: a callback that logs every report of a fit, and at its end the pictures, the report and the solution.

    ``"mlflow"`` writes parameters, metrics by term, figures, the HTML report and the solution as artefacts; ``"tensorboard"``
    scalars, figures, the estimates and the graph of the trial function; ``"wandb"`` the same to Weights & Biases. A function
    receives the numbers alone. Where a tracker fails, because its server or database is down, there is one warning and the fit
    goes on; the numbers are in ``history.jsonl`` and ``solution.history`` all the same. It is called again with the next
    report. After an interruption reports are sent again from the last checkpoint on, with the steps that they had.

    Args:
        log: ``"mlflow"``, ``"tensorboard"``, ``"wandb"``, or a function that takes a dict of numbers by name and, as the
            keyword ``step``, the step over all phases. It runs in the fit's own thread: give its client a short timeout.
        to: where: the tracking URI of MLflow (by default SQLite in ``mlflow.db``), the folder of TensorBoard
            (``runs/tensorboard``), the project of Weights & Biases (``sciml``).
        name: the experiment in MLflow, the name of the run elsewhere.
        options: passed to ``wandb.init``, such as ``mode="offline"``.

    Raises:
        SolverError: ``log`` is none of these.
        MissingExtraError: the tracker's library is not installed.

    Example:
        >>> import sciml
        >>> seen = []
        >>> tracker = sciml.Tracker(lambda numbers, step: seen.append((step, numbers["loss"])))
        >>> tracker(sciml.Report("Adam", 50, 1000, 0.1, 0.25, 0.3, 0.3, {"decay": 0.25}, {}))
        >>> seen
        [(50, 0.25)]

    Reference: M. Zaharia and others, Accelerating the machine learning lifecycle with MLflow, IEEE Data Engineering Bulletin 41
    (2018).
    """

    def __init__(
        self, log: str | Callable[..., Any], to: str | Path | None = None, name: str = "sciml", **options: Any
    ) -> None:
        self._warned = False
        self._service: Any
        if callable(log):
            # A function is told numbers only.
            self._service = SimpleNamespace(log=log, conclude=lambda solution: None)
        elif isinstance(log, str) and log in _SERVICES:
            self._service = _SERVICES[log](to, name, options)
        else:
            raise SolverError(
                f"Tracker needs {listed(_SERVICES)}, or log(numbers, step=...), such as mlflow.log_metrics; given: {log!r}"
            )

    def __call__(self, report: Report) -> None:
        """Log one report."""
        if report.replayed:
            return
        numbers = {"seconds": report.seconds, "loss": report.loss, "held_out": report.held_out}
        numbers |= {f"loss.{name}": value for name, value in report.terms.items()} | dict(report.unknowns)
        with self._survived(f"at step {report.step} and the fit goes on without it"):
            self._service.log(numbers, step=report.step)

    def conclude(self, solution: Solution) -> None:
        """Log what a fit ended with; ``fit`` calls it."""
        with self._survived("at the end"):
            self._service.conclude(solution)

    @contextlib.contextmanager
    def _survived(self, when: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._warned:
                self._warned = True
                warnings.warn(f"the tracker failed {when}: {type(error).__name__}: {error}", TrackerWarning, stacklevel=4)


def _described(solution: Solution) -> tuple[dict[str, Any], dict[str, float]]:
    """Parameters of a fit, and the numbers that say how good it is."""
    told = summary(solution)
    parameters = {
        name: told[name] for name in ("problem", "model", "parameters", "solver", "engine", "dtype", "device", "seed")
    }
    results = {"success": float(solution.success), "seconds": solution.seconds, "steps": float(solution.nit)}
    for head, found in (("estimated_error", told["estimated_error"]), ("relative_l2", told["relative_l2"] or {})):
        results |= {f"{head}.{name}": value for name, value in found.items() if value is not None}
    for name, row in told["unknowns"].items():
        results |= {f"{name}.{what}": value for what, value in row.items() if value is not None}
    return parameters, results


def _pictures(solution: Solution) -> Iterator[tuple[str, Figure]]:
    """The figures that trackers show; a slice that misses the domain is none."""
    with contextlib.suppress(SciMLError):
        yield "fields", solution.plot()


class _MLflow:
    """The client of MLflow, which leaves the active run of the caller alone."""

    def __init__(self, to: str | Path | None, name: str, options: Mapping[str, Any]) -> None:
        with extra("track", "Tracker('mlflow') needs MLflow"):
            from mlflow.tracking import MlflowClient
        self._at = str(to or "sqlite:///mlflow.db")
        self._make = lambda: MlflowClient(tracking_uri=self._at)
        self._name = name
        self._client: Any = None
        self._run = ""

    def _begun(self) -> Any:
        """The client, with a run begun: one for each fit."""
        if self._client is None:
            self._client = self._make()
        if not self._run:
            found = self._client.get_experiment_by_name(self._name)
            experiment = found.experiment_id if found is not None else self._created()
            self._run = self._client.create_run(experiment).info.run_id
        return self._client

    def _created(self) -> str:
        """A new experiment; the artefacts of a database in a file lie beside that file, and not wherever Python was started."""
        _, local, file = self._at.partition("sqlite:///")
        beside = (Path(file).resolve().parent / "mlartifacts").as_uri() if local else None
        return self._client.create_experiment(self._name, artifact_location=beside)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        client = self._begun()
        for name, value in numbers.items():
            client.log_metric(self._run, name, value, step=step)

    def conclude(self, solution: Solution) -> None:
        client = self._begun()
        parameters, results = _described(solution)
        for name, value in parameters.items():
            client.log_param(self._run, name, str(value)[:500])
        for name, value in results.items():
            client.log_metric(self._run, name, value)
        for name, figure in _pictures(solution):
            client.log_figure(self._run, figure, f"{name}.png")
        with tempfile.TemporaryDirectory() as folder:
            for path in (solution.save(Path(folder) / "solution.pt"), solution.report(Path(folder) / "report.html")):
                client.log_artifact(self._run, str(path))
        client.set_terminated(self._run, "FINISHED" if solution.success else "FAILED")
        self._run = ""


class _TensorBoard:
    def __init__(self, to: str | Path | None, name: str, options: Mapping[str, Any]) -> None:
        with extra("track", "Tracker('tensorboard') needs TensorBoard"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer = SummaryWriter(str(to or Path("runs") / "tensorboard"))
        self._last = 0

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._last = step
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def conclude(self, solution: Solution) -> None:
        import torch

        parameters, results = _described(solution)
        for name, value in parameters.items():
            self._writer.add_text(name, str(value), self._last)
        for name, value in results.items():
            self._writer.add_scalar(f"result/{name}", value, self._last)
        for name, figure in _pictures(solution):
            self._writer.add_figure(name, figure, self._last, close=False)
        low, high = torch.tensor(list(solution.bounds.values()), dtype=solution.dtype).T
        with contextlib.suppress(Exception), warnings.catch_warnings():
            # What torch.jit cannot follow has no graph.
            warnings.simplefilter("ignore")
            self._writer.add_graph(solution.trial, ((low + high) / 2)[None])
        self._writer.flush()


class _WandB:
    def __init__(self, to: str | Path | None, name: str, options: Mapping[str, Any]) -> None:
        with extra("track", "Tracker('wandb') needs Weights & Biases"):
            import wandb
        self._wandb: Any = wandb
        self._how = {"project": str(to or "sciml"), "name": name, **options}
        self._run: Any = None

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        if self._run is None:
            self._run = self._wandb.init(**self._how)
        self._run.log(dict(numbers), step=step)

    def conclude(self, solution: Solution) -> None:
        if self._run is None:
            self._run = self._wandb.init(**self._how)
        from PIL import Image

        parameters, results = _described(solution)
        self._run.config.update(parameters)
        self._run.summary.update(results)
        for name, figure in _pictures(solution):
            with Image.open(io.BytesIO(png(figure))) as picture:
                self._run.log({name: self._wandb.Image(picture)})
        self._run.finish(exit_code=0 if solution.success else 1)
        self._run = None


# Each takes numbers by ``log``, and what a fit ended with by ``conclude``.
_SERVICES: dict[str, Any] = {"mlflow": _MLflow, "tensorboard": _TensorBoard, "wandb": _WandB}
