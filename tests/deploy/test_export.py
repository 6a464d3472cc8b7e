"""Fields as programs of torch alone, and what cannot be one."""

import json
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from conftest import ROOT
from torch import nn

import sciml
from sciml import d
from sciml.errors import FileError, ModelError, ProblemError
from sciml.geometry import Interior, draw


class Rotation(sciml.Problem):
    """Two fields, so that columns can be chosen."""

    domain = sciml.Interval(t=(0, 2))
    fields = ["u", "v"]
    conditions = [sciml.Initial(u=1.0, v=0.0)]

    @sciml.equation
    def one(self, u, v, t):
        return d(u, t) + v

    @sciml.equation
    def other(self, u, v, t):
        return d(v, t) - u


@pytest.fixture(scope="module")
def solution():
    return sciml.fit(Rotation(), sciml.MLP(8), solver=sciml.LBFGS(30))


def test_fault_61_the_field_itself_is_exported_and_needs_torch_alone(solution, tmp_path):
    path = solution.export(tmp_path / "field.pt2")
    assert path == tmp_path / "field.pt2"
    np.save(tmp_path / "t.npy", t := np.linspace(0, 2, 1001))
    code = (
        "import sys, json, numpy, torch\n"
        "told = {'sciml.json': ''}\n"
        "program = torch.export.load(sys.argv[1] + '/field.pt2', extra_files=told).module()\n"
        "t = torch.from_numpy(numpy.load(sys.argv[1] + '/t.npy'))[:, None]\n"
        "numpy.save(sys.argv[1] + '/u.npy', program(t).detach().numpy())\n"
        "assert not any(name.split('.')[0] == 'sciml' for name in sys.modules)\n"
        "print(told['sciml.json'])\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    expected = solution(t=t)
    values = np.load(tmp_path / "u.npy")
    assert np.abs(values[:, 0] - expected["u"]).max() <= 1e-15
    assert np.abs(values[:, 1] - expected["v"]).max() <= 1e-15
    told = json.loads(run.stdout)
    assert {name: told[name] for name in ("coordinates", "fields", "bounds")} == {
        "coordinates": ["t"],
        "fields": ["u", "v"],
        "bounds": {"t": [0, 2]},
    }
    assert told["difference"] <= 1e-15
    assert str(ROOT) not in path.read_bytes().decode("latin-1")


def test_fault_61_derivatives_are_exported_too(solution, tmp_path):
    path = solution.export(tmp_path / "field.pt2", fields=["u", "v_tt"])
    t = torch.linspace(0.1, 1.9, 7, dtype=torch.float64)
    values, expected = torch.export.load(path).module()(t[:, None]), solution(t=t, derivatives=["v_tt"])
    assert torch.allclose(values[:, 0], expected["u"], atol=1e-14)
    assert torch.allclose(values[:, 1], expected["v_tt"], atol=1e-12)
    with pytest.raises(ProblemError, match=r"no field 'U' to export; there are 'u', 'v'"):
        solution.export(tmp_path / "other.pt2", fields="U")
    with pytest.raises(FileError, match="exists and is kept"):
        solution.export(path)
    with pytest.raises(FileError, match=r"ends in \.onnx, \.pt2"):
        solution.export(tmp_path / "field.pt")
    assert [each.name for each in tmp_path.iterdir()] == ["field.pt2"]


class Growth(sciml.Problem):
    """A rate that is a coordinate."""

    domain = sciml.Box(t=(0, 1), rate=(1, 2))
    time = "t"
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def growth(self, u, t, rate):
        return d(u, t) - rate * u


def kinds():
    """A solution of every kind of trial function."""
    gallery, strategies = sciml.gallery.problem, sciml.strategies
    yield "polynomials", lambda: sciml.fit(Growth())
    yield "network", lambda: sciml.fit(gallery("poisson_square"), sciml.MLP(8), solver=sciml.LBFGS(20))
    yield "windows of polynomials", lambda: sciml.fit(gallery("harmonic_oscillator"), strategy=strategies.TimeMarching())
    yield "tiles", lambda: sciml.fit(gallery("poisson_disk_robin"))
    yield "grid", lambda: sciml.baseline(gallery("heat_rod"))
    yield "pieces", lambda: sciml.baseline(Rotation())
    yield "slabs", lambda: sciml.fit(gallery("burgers"))
    yield "windows of networks", lambda: sciml.fit(Rotation(), sciml.MLP(8), solver=sciml.LBFGS(5), windows=2)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        pytest.param(*each, id=each[0].replace(" ", "-"), marks=[pytest.mark.slow] if each[0] == "slabs" else [])
        for each in kinds()
    ],
)
def test_every_kind_of_solution_runs_elsewhere(name, make, tmp_path):
    """Fields and derivatives of networks, polynomials, tiles, windows and grids, by onnxruntime."""
    solution = make()
    field, first = solution.fields[0], solution.coordinates[0]
    wanted = [field, f"{field}_{first}"]
    path = solution.export(tmp_path / "field.onnx", wanted)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == list(solution.coordinates)
    assert [each.name for each in session.get_outputs()] == wanted
    told = json.loads(session.get_modelmeta().custom_metadata_map["sciml.json"])
    assert told["bounds"] == {name: list(pair) for name, pair in solution.bounds.items()}
    assert told["difference"] < 1e-10
    points = draw(Interior(), solution.domain, 57, np.random.default_rng(5)).points[0].numpy()
    at = dict(zip(solution.coordinates, points.T.copy(), strict=True))
    expected = solution(**at, derivatives=wanted[1:])
    for name, values in zip(wanted, session.run(None, at), strict=True):
        assert np.abs(values - expected[name]).max() <= 1e-10 * np.abs(expected[name]).max()
    assert str(ROOT).encode() not in path.read_bytes()


def test_float32_for_onnx_and_what_it_does_not_hold(tmp_path):
    solution = sciml.fit(Growth())
    session = onnxruntime.InferenceSession(solution.export(tmp_path / "u.onnx", dtype="float32"))
    t = np.linspace(0, 1, 5, dtype=np.float32)
    (values,) = session.run(None, {"t": t, "rate": np.full_like(t, 1.5)})
    assert values.dtype == np.float32
    assert values == pytest.approx(np.exp(1.5 * t), rel=1e-5)
    with pytest.raises(ModelError, match="float64 or float32"):
        solution.export(tmp_path / "v.onnx", dtype="float16")


@pytest.mark.slow
def test_weights_that_cancel_each_other_lose_digits_elsewhere_too(tmp_path):
    """Features with large weights round by more than the last digit; a program that rounds otherwise is no other function."""

    class Swing(sciml.Problem):
        domain = sciml.Interval(t=(0, 10))
        fields = ["u"]
        conditions = [sciml.Initial(u=1.0, u_t=0.0)]

        @sciml.equation
        def pendulum(self, u, t):
            return d(u, t, t) + 4 * torch.sin(u)

    solution = sciml.fit(Swing())
    session = onnxruntime.InferenceSession(solution.export(tmp_path / "swing.onnx"))
    t = np.linspace(0, 10, 101)
    assert session.run(None, {"t": t})[0] == pytest.approx(solution(t=t)["u"], abs=1e-8)


def test_complex_functions_at_corners_are_no_onnx(tmp_path):
    corner = sciml.fit(sciml.gallery.problem("poisson_l_shape"))
    with pytest.raises(ModelError, match=r"ONNX cannot hold .* \.pt2 file can"):
        corner.export(tmp_path / "u.onnx")
    x = torch.tensor([[0.5, 0.25], [-0.5, 0.5]], dtype=torch.float64)
    values = torch.export.load(corner.export(tmp_path / "u.pt2")).module()(x)
    assert torch.allclose(values[:, 0], corner(x=x[:, 0], y=x[:, 1])["u"], atol=1e-10)


def test_one_field_and_float32(tmp_path):
    single = sciml.fit(Rotation(), sciml.MLP(8), solver=sciml.LBFGS(5), dtype=torch.float32)
    program = torch.export.load(single.export(tmp_path / "v.pt2", fields=["v"])).module()
    t = torch.linspace(0, 2, 5)
    assert torch.equal(program(t[:, None])[:, 0], single(t=t)["v"])


class Strip(sciml.Problem):
    """Two fields, one held at both ends, the other at one and from a bend at the start on."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u", "v"]
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(torch.pi * x), v=lambda x: torch.where(x > 0.5, 1 - x, x)),
        sciml.Dirichlet(u=0.0, on=domain.faces("x")),
        sciml.Dirichlet(v=lambda t: 0 * t, on=domain.face(x=0), name="left"),
    ]

    @sciml.equation
    def one(self, u, v, x, t):
        return d(u, t) - d(u, x, x)

    @sciml.equation
    def other(self, u, v, x, t):
        return d(v, t) + d(v, x)


class Ring(Strip):
    conditions = [sciml.Periodic("x"), sciml.Initial(u=lambda x: torch.sin(2 * torch.pi * x), v=1.0)]


@pytest.mark.parametrize("problem", [Strip, Ring])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_conditions_that_are_held_exactly_are_exported(problem, dtype, tmp_path):
    held = sciml.fit(problem(), sciml.MLP(8), solver=sciml.Adam(2), exact=True, dtype=dtype, points=64)
    program = torch.export.load(held.export(tmp_path / "held.pt2", fields=["v", "u"])).module()
    points = torch.rand(50, 2, dtype=dtype, generator=torch.Generator().manual_seed(0))
    points[:20] = points[:20].round()
    expected = held(x=points[:, 0], t=points[:, 1])
    for count in (50, 1, 0):
        values = program(points[:count])
        for column, name in enumerate(("v", "u")):
            assert torch.allclose(values[:, column], expected[name][:count], rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_a_number_of_points_is_never_a_constant(tmp_path):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 2)

        def forward(self, points):
            return torch.tanh(self.layer(points)) + points.new_zeros(len(points), 1)

    counting = sciml.fit(Rotation(), Counting(), solver=sciml.Adam(2))
    program = torch.export.load(counting.export(tmp_path / "field.pt2")).module()
    t = torch.linspace(0, 2, 23, dtype=torch.float64)
    assert torch.allclose(program(t[:, None])[:, 0], counting(t=t)["u"], atol=1e-14)

    class Sized(Counting):
        def forward(self, points):
            return torch.tanh(self.layer(points)) + 1 / len(points)

    sized = sciml.fit(Rotation(), Sized(), solver=sciml.Adam(2), preflight="off")
    with pytest.raises(ModelError, match="differs from the solution"):
        sized.export(tmp_path / "sized.pt2")


def test_what_no_graph_holds_is_refused(solution, tmp_path):
    class Choosy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 2).double()

        def forward(self, points):
            values = self.layer(points)
            return values + torch.tanh(values) if float(values.detach().sum()) < 1e9 else values

    choosy = sciml.fit(Rotation(), Choosy(), solver=sciml.Adam(2))
    with pytest.raises(ModelError, match="cannot be cut out as a graph of torch operations"):
        choosy.export(tmp_path / "field.pt2")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write"):
        solution.export(tmp_path / "file" / "field.pt2")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_functional_mockup_unit_runs_in_a_simulator(solution, tmp_path):
    """FMI 2.0: fields and derivatives over the simulator's time; a step that leaves the domain is discarded."""
    fmpy = pytest.importorskip("fmpy")
    path = solution.export(tmp_path / "rotation.fmu", fields=["u", "v", "v_t"])
    assert pytest.importorskip("fmpy.validation").validate_fmu(str(path)) == []
    known = fmpy.simulate_fmu(str(path), output_interval=0.125)
    assert known["time"][-1] == 2.0
    expected = solution(t=known["time"], derivatives=["v_t"])
    for name in ("u", "v", "v_t"):
        assert np.allclose(known[name], expected[name], rtol=0, atol=1e-12)
    assert fmpy.simulate_fmu(str(path), stop_time=9.0, output_interval=0.5)["time"][-1] <= 2.0


def test_of_a_field_in_space_a_unit_has_places_as_inputs(tmp_path):
    fmpy = pytest.importorskip("fmpy")
    rod = sciml.fit(Strip(), sciml.MLP(8), solver=sciml.Adam(2), points=64)
    path = rod.export(tmp_path / "rod.fmu")
    known = fmpy.simulate_fmu(str(path), start_values={"x": 0.3}, output_interval=0.25)
    assert np.allclose(known["u"], rod(x=0.3, t=known["time"])["u"], rtol=0, atol=1e-12)

    class Still(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0)]

        @sciml.equation
        def bent(self, u, x):
            return d(u, x, x) - 1.0

    with pytest.raises(ProblemError, match="simulates over time"):
        sciml.fit(Still()).export(tmp_path / "still.fmu")
