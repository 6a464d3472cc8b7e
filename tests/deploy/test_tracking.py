"""Trackers over the real local back ends of MLflow and TensorBoard."""

import os
import subprocess
import sys

import pytest

import sciml
from problems import Decay
from sciml.errors import SolverError, TrackerWarning


def fitted(tracker):
    return sciml.fit(Decay(), sciml.MLP(6), solver=sciml.Adam(60, look=20), callbacks=[tracker])


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_parameters_metrics_figures_report_and_solution(tmp_path):
    tracking = pytest.importorskip("mlflow.tracking")
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    client = tracking.MlflowClient(tracking_uri=uri)
    tracker = sciml.Tracker("mlflow", uri, "decays")
    solution = fitted(tracker)
    experiment = client.get_experiment_by_name("decays").experiment_id
    (run,) = client.search_runs([experiment])
    assert run.data.params["problem"] == "Decay"
    assert run.info.artifact_uri.startswith(tmp_path.as_uri()), "beside the database"
    assert run.info.status == ("FINISHED" if solution.success else "FAILED")
    steps = [each.step for each in client.get_metric_history(run.info.run_id, "loss")]
    assert steps == solution.history["step"].tolist()
    assert client.get_metric_history(run.info.run_id, "loss.decay")
    names = {each.path for each in client.list_artifacts(run.info.run_id)}
    assert names == {"fields.png", "report.html", "solution.pt"}
    again = sciml.load(client.download_artifacts(run.info.run_id, "solution.pt", str(tmp_path)))
    assert again(t=0.5)["u"] == solution(t=0.5)["u"]
    fitted(tracker)
    assert len(client.search_runs([experiment])) == 2, "a run for each fit"


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_has_scalars_figures_and_the_graph(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    solution = fitted(sciml.Tracker("tensorboard", tmp_path))
    found = reader.EventAccumulator(str(tmp_path)).Reload()
    assert [each.step for each in found.Scalars("loss")] == solution.history["step"].tolist()
    assert found.Scalars("result/success")[0].value == solution.success
    assert found.Images("fields")
    assert found.Graph()


@pytest.mark.filterwarnings("ignore")
def test_a_tracker_that_fails_never_ends_a_fit():
    pytest.importorskip("mlflow")
    with pytest.warns(TrackerWarning, match="goes on without it"):
        solution = fitted(sciml.Tracker("mlflow", "sqlite:////proc/nowhere/store.db"))
    assert solution.nit == 60

    class Late:
        def __call__(self, report):
            pass

        def conclude(self, solution):
            self.seen = solution

    late = Late()
    assert fitted(late) is late.seen
    with pytest.raises(SolverError, match="'mlflow', 'tensorboard', 'wandb', or log"):
        sciml.Tracker("excel")


def test_weights_and_biases_offline(tmp_path):
    pytest.importorskip("wandb")
    script = """
import sciml, sys
sys.path[:0] = sys.argv[1:]
from test_tracking import fitted
fitted(sciml.Tracker("wandb", "project", "run", mode="offline"))
"""
    here = os.path.dirname(__file__)
    paths = here, os.path.dirname(here)
    environment = {**os.environ, "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}
    done = subprocess.run(
        [sys.executable, "-c", script, *paths], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "TrackerWarning" not in done.stderr, done.stderr
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
