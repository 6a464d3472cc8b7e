"""Solutions as functions: coordinates by name, tables, derivatives; conditions that need not say where."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import problem_class

import sciml
from problems import Decay, Poisson
from sciml import d
from sciml.errors import FileError, ProblemError


@pytest.fixture(scope="module")
def rod():
    return sciml.fit(problem_class("heat_rod")())


def test_a_table_or_a_frame_has_the_coordinates_as_columns(rod):
    frame = pd.DataFrame({"t": [0.1, 0.2], "x": [0.3, 0.4], "note": ["a", "b"]}, index=[7, 9])
    named = rod(x=frame["x"].to_numpy(), t=frame["t"].to_numpy())
    for given in (frame, {"x": [0.3, 0.4], "t": [0.1, 0.2]}, sciml.data.Table({"x": [0.3, 0.4], "t": [0.1, 0.2]})):
        assert np.array_equal(rod(given)["u"], named["u"])


def test_points_without_names_are_refused(rod):
    with pytest.raises(TypeError, match=r"solution\(x=\.\.\., t=\.\.\.\), or a DataFrame"):
        rod(np.zeros((3, 2)))
    with pytest.raises(ProblemError, match="lacks the coordinate 't'; it has 'x'"):
        rod(pd.DataFrame({"x": [0.1]}))


@pytest.mark.parametrize("model", [None, sciml.MLP(8)])
def test_derivatives_come_with_the_fields(model):
    solution = sciml.fit(Decay(), model, solver=None if model is None else sciml.LBFGS(300))
    t = np.array([[0.1, 0.5, 0.9]])
    found = solution(t=t, derivatives=["u_t", "u_tt"])
    x = torch.from_numpy(t).requires_grad_()
    (slope,) = torch.autograd.grad(solution(t=x)["u"].sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x)
    assert np.allclose(found["u_t"], slope.detach().numpy(), rtol=1e-9)
    assert found["u_tt"].shape == (1, 3)
    assert np.allclose(found["u_tt"], bend.numpy(), rtol=1e-9)
    assert np.allclose(found["u_t"], -2 * found["u"], rtol=5e-2)
    assert isinstance(solution(t=torch.tensor([0.5]), derivatives=["u_t"])["u_t"], torch.Tensor)
    with pytest.raises(ProblemError, match="'v_t' is no derivative of 'u' by 't', as u_t"):
        solution(t=0.5, derivatives=["v_t"])


def test_a_condition_without_a_place_holds_on_the_whole_boundary():
    class Everywhere(Poisson):
        conditions = [sciml.Dirichlet(u=0.0)]

    assert abs(sciml.fit(Everywhere())(x=0.5, y=0.5)["u"] - sciml.fit(Poisson())(x=0.5, y=0.5)["u"]) < 1e-12

    class InTime(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=lambda x: torch.sin(torch.pi * x)), sciml.Dirichlet(u=0.0)]

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - d(u, x, x)

    assert abs(sciml.fit(InTime())(x=0.5, t=0.1)["u"] - np.exp(-0.1 * np.pi**2)) < 1e-8


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_where_the_caller_needs_no_gradients_fits_have_their_own(context):
    with context():
        exact, grids = sciml.fit(Decay()), sciml.baseline(Decay())
        network = sciml.fit(Decay(), sciml.MLP(8), solver=sciml.solvers.LBFGS(50))
        (slope,) = network(t=[0.5], derivatives=["u_t"])["u_t"]
        assert len(sciml.doctor(network).layers)
        assert not torch.is_grad_enabled()
    assert exact.success
    assert grids.success
    assert slope == pytest.approx(-2 * float(network(t=0.5)["u"]), rel=0.1)


def test_what_lies_beside_a_solution_is_refused_where_it_is_drawn_or_written(rod, tmp_path):
    with pytest.raises(ProblemError, match=r"at= has t = 7\.0, and the solution of HeatRod holds from 0\.0 to 1\.0"):
        rod.plot(at={"t": [0.5, 7]})
    rod.plot(at={"t": float(np.float32(1.0) + np.float32(1e-7))})
    for wrong in (0, -3, 2.5, True):
        with pytest.raises(ProblemError, match="resolution must be a whole number"):
            rod.grid(wrong)
        with pytest.raises(ProblemError, match="resolution must be a whole number"):
            rod.to_xarray(wrong)
    with pytest.raises(FileError, match=r"solution\.pt, and no \.CSV: grids of values are written by"):
        rod.save(tmp_path / "values.CSV")
    assert not list(tmp_path.iterdir())
