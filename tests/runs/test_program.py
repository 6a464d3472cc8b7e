"""Fields as programs of torch alone, and what cannot be one."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT
from torch import nn

import sciml
from sciml import d
from sciml.errors import FileError, ModelError, ProblemError


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
    assert json.loads(run.stdout) == {"coordinates": ["t"], "fields": ["u", "v"], "bounds": {"t": [0, 2]}}
    assert str(ROOT) not in path.read_bytes().decode("latin-1")


def test_fault_61_derivatives_inside_are_refused_with_the_reason(solution, tmp_path):
    for name in ("u_t", "v_tt"):
        with pytest.raises(ProblemError, match=rf"{name} cannot be exported: derivatives are made by .*Export '"):
            solution.export(tmp_path / "field.pt2", fields=["u", name])
    with pytest.raises(ProblemError, match=r"no field 'U' to export; there are 'u', 'v'"):
        solution.export(tmp_path / "field.pt2", fields="U")
    assert list(tmp_path.iterdir()) == []


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


def test_a_number_of_points_that_becomes_a_constant_is_named(tmp_path):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 2)

        def forward(self, points):
            return torch.tanh(self.layer(points)) + points.new_zeros(len(points), 1)

    counting = sciml.fit(Rotation(), Counting(), solver=sciml.Adam(2))
    with pytest.raises(ModelError, match=r"it holds for 11 points alone.*take points\.shape\[0\]"):
        counting.export(tmp_path / "field.pt2")


def test_what_no_graph_holds_is_refused(solution, tmp_path):
    pieces = sciml.fit(Rotation(), sciml.MLP(8), solver=sciml.LBFGS(5), windows=2)
    for each in (pieces, sciml.baseline(Rotation())):
        with pytest.raises(ModelError, match=r"in pieces .*: sciml\.distil\(solution\) makes one network"):
            each.export(tmp_path / "field.pt2")

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
