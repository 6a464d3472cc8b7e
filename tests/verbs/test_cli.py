"""The command line, as a person runs it."""

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT
from matplotlib import image

import sciml
from sciml import cli, fitting
from sciml.cli import main, parse_model
from sciml.errors import ModelError, ProblemError
from sciml.gallery import load_problem

QUICK = """
import sciml
from sciml import d

class Decay(sciml.Problem):
    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]
    rate = sciml.Unknown(1.0, lower=0)

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + self.rate * u

    def measurements(self):
        return {"t": [0.0, 0.3, 0.5, 0.8, 1.0], "u": [1.0, 0.55, 0.36, 0.21, 0.13]}
"""


def run(*arguments, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, "-m", "sciml.cli", *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("model", [[], pytest.param(["--model", "MLP(8)"], marks=pytest.mark.slow)])
def test_fit_prints_and_writes_everything(tmp_path, model):
    (tmp_path / "decay.py").write_text(QUICK)
    done = run("fit", "decay.py", *model, "--seed", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("rate", "SciPy", "95 % interval", "residuals on fresh points", "runs/decay/summary.json"):
        assert words in done.stdout
    assert "held-out" in done.stderr
    summary = json.loads((tmp_path / "runs/decay/summary.json").read_text())
    assert summary["problem"] == "Decay"
    assert summary["seed"] == 3
    assert summary["unknowns"]["rate"]["value"] == pytest.approx(2.0, rel=0.05)
    assert image.imread(tmp_path / "runs/decay/fit.png").shape[2] >= 3
    assert sciml.load(tmp_path / "runs/decay/solution.pt").success


@pytest.mark.slow
def test_baseline_and_version(tmp_path):
    (tmp_path / "decay.py").write_text(QUICK)
    done = run("baseline", "decay.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rate" in done.stdout
    assert run("--version", cwd=tmp_path).stdout.strip() == f"sciml {sciml.__version__}"


def test_measurements_and_points_come_from_the_command_line(tmp_path, monkeypatch, capsys):
    """Both methods fit the file that is named, and the run is continued with the same one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "decay.py").write_text(QUICK)
    (tmp_path / "faster.csv").write_text("t,u\n0,1\n0.2,0.5488\n0.4,0.3012\n0.6,0.1653\n1,0.0498\n")
    called = ["fit", "decay.py", "--data", "faster.csv", "--points", "40", "--solver", "LeastSquares(20)", "--model", "MLP(6)"]
    for arguments in (called, ["resume", "runs/decay"]):
        monkeypatch.setattr(sys, "argv", ["sciml", *arguments])
        with pytest.raises(SystemExit):
            main()
        assert "the same problem by SciPy" in capsys.readouterr().out
        summary = json.loads((tmp_path / "runs/decay/summary.json").read_text())
        assert summary["unknowns"]["rate"]["value"] == pytest.approx(3.0, rel=0.02)
        assert summary["points"]["decay"] == 40
    monkeypatch.setattr(sys, "argv", ["sciml", "baseline", "decay.py", "--data", "faster.csv", "--out", "classical"])
    with pytest.raises(SystemExit):
        main()
    summary = json.loads((tmp_path / "classical/summary.json").read_text())
    assert summary["unknowns"]["rate"]["value"] == pytest.approx(3.0, rel=0.02)


def test_a_budget_and_how_to_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "decay.py").write_text(QUICK)
    (tmp_path / "faster.csv").write_text("t;u_mm\n0;1\n0.2;0.5488\n0.4;0.3012\n0.6;0.1653\n1;0.0498\n")
    told = []
    monkeypatch.setattr(cli, "run_fit", lambda *given, **options: told.append(options) or sciml.fit(*given, **options))
    how = "sep=';', columns={'t': 't', 'u': 'u_mm'}"
    called = ["fit", "decay.py", "--data", "faster.csv", "--read", how, "--seconds", "50"]
    for arguments in (called, ["resume", "runs/decay"], ["baseline", "decay.py", *called[2:6], "--out", "classical"]):
        monkeypatch.setattr(sys, "argv", ["sciml", *arguments])
        with pytest.raises(SystemExit):
            main()
    assert [each["seconds"] for each in told] == [50.0, 50.0]
    for run_of in ("runs/decay", "classical"):
        summary = json.loads((tmp_path / run_of / "summary.json").read_text())
        assert summary["unknowns"]["rate"]["value"] == pytest.approx(3.0, rel=0.02)
    monkeypatch.setattr(sys, "argv", ["sciml", "fit", "decay.py", "--data", "faster.csv", "--read", "sep=open('x')"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


def test_a_healthy_run_is_sound(tmp_path, monkeypatch):
    """What a run writes beside its files, a history and a report, was told as damage."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "decay.py").write_text(QUICK)
    ended = []
    fitted = ["fit", "decay.py", "--model", "MLP(6)", "--solver", "LBFGS(300)"]
    for arguments in (fitted, ["report", "runs/decay"], ["doctor", "runs/decay"]):
        monkeypatch.setattr(sys, "argv", ["sciml", *arguments])
        try:
            main()
        except SystemExit as end:
            ended.append(end.code)
    assert ended[-1] == 0
    assert (tmp_path / "runs/decay/report.html").exists()


def test_nobody_waits_for_scipy_after_an_interruption(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "decay.py").write_text(QUICK)

    def interrupted(problem, network, **how):
        # The progress line is a callback like any other: the fit is interrupted where it is called.
        def stop(report):
            raise KeyboardInterrupt

        return fitting.fit(problem, network, **how, callbacks=[stop])

    monkeypatch.setattr(cli, "run_fit", interrupted)
    monkeypatch.setattr(sys, "argv", ["sciml", "fit", "decay.py", "--model", "MLP(6)", "--solver", "Adam(100)"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().out
    assert ended.value.code == 1
    assert "SciPy" not in said
    assert "interrupted" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "nowhere.py"], "there is no file nowhere.py"),
        (["baseline", "pendulun"], "Did you mean 'pendulum'"),
        (["fit", "broken.py"], "broken.py cannot be run: ZeroDivisionError"),
        (["fit", "two.py"], "2 problem classes; it has 'A', 'B'"),
        (["fit", "two.py:C"], "no problem class 'C'"),
        (["fit", "two.py:A", "--model", "CNN(3)"], "a model is written like"),
        (["fit", "two.py:A", "--dtype", "float16"], "dtype must be float64 or float32"),
    ],
)
def test_errors_are_one_sentence(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sciml", *arguments])
    (tmp_path / "broken.py").write_text("1 / 0\n")
    shape = "class {0}(sciml.Problem):\n    domain = sciml.Interval(t=(0, 1))\n    fields = ['u']\n"
    (tmp_path / "two.py").write_text("import sciml\n" + shape.format("A") + shape.format("B"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert words in " ".join(said.split())
    assert said.startswith("error: ")


@pytest.mark.slow
def test_an_error_is_the_exit_status_of_the_program(tmp_path):
    done = run("fit", "nowhere.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no file nowhere.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_class_may_be_named():
    assert type(load_problem(f"{ROOT}/problems/burgers.py:Burgers")).__name__ == "Burgers"
    with pytest.raises(ProblemError, match="no problem class 'Burger'"):
        load_problem(f"{ROOT}/problems/burgers.py:Burger")


@pytest.mark.slow
def test_names_of_the_gallery_stand_for_files(tmp_path):
    done = run("list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("what it is", "harmonic_oscillator", "birth", "measured", "x, y, t"):
        assert words in done.stdout
    done = run("baseline", "harmonic_oscillator", "--out", "swing", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "HarmonicOscillator from harmonic_oscillator" in done.stdout
    done = run("fit", "harmonic_oscillator:HarmonicOscillator", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("swing", "runs/harmonic_oscillator"):
        assert (tmp_path / name / "fit.png").stat().st_size > 1000


def test_models_are_parsed_not_evaluated():
    assert parse_model("MLP(20, 10, activation='gelu')").hidden == (20, 10)
    for text in ("MLP", "MLP(__import__('os'))", "MLP(20", "MLP(20, activation=tanh)", "MLP(20, colour='red')"):
        with pytest.raises(ModelError, match="model is written like"):
            parse_model(text)
