"""The sets that docs/embeddings.md embeds are what they say they are."""

import h5py
import numpy as np
import torch
from benchmarks import embeddings
from conftest import problem_class
from scipy.interpolate import make_interp_spline


def test_curves_are_cole_and_hopfs():
    with h5py.File(embeddings.path_of("burgers_family")) as file:
        columns = {name: file[name][...] for name in file}
    x = torch.from_numpy(columns["x"])
    for number, (viscosity, amplitude) in enumerate(zip(columns["viscosity"], columns["amplitude"], strict=True)):
        problem = problem_class("burgers")(nu=viscosity / amplitude)
        exact = amplitude * problem.reference(x, torch.full_like(x, amplitude)).numpy()
        assert np.abs(columns["u"][number] - exact).max() < 1e-6
    # The derivatives of the smoothest curve against those of a spline through it.
    smooth = np.argmax(columns["viscosity"] / columns["amplitude"])
    spline = make_interp_spline(columns["x"], columns["u"][smooth], 7)
    for order, name in enumerate(("u_x", "u_xx"), start=1):
        assert np.abs(columns[name][smooth] - spline(columns["x"], order)).max() < 1e-3


def test_a_curve_and_a_record_are_those_that_the_script_makes():
    with h5py.File(embeddings.path_of("burgers_family")) as file:
        number = int(np.argmax(file["viscosity"][...]))
        made = embeddings.curve(file["viscosity"][number], file["amplitude"][number], file["x"][...])
        assert np.allclose(made[0], file["u"][number], atol=1e-8)
    with h5py.File(embeddings.path_of("gray_scott_regimes")) as file:
        assert file["v"].fletcher32
        seed = 2 * embeddings.RUNS
        assert file["regime"].asstr()[seed] == "stripes"
        made = embeddings.record(file["feed"][seed], file["kill"][seed], seed)
        # Stripes come to rest, so that rounding does not grow.
        assert np.allclose(made, file["v"][seed], atol=1e-6)
        still = np.abs(np.diff(file["v"][...], axis=1)).max((1, 2))
        chaos = file["regime"].asstr()[...] == "chaos"
        assert still[chaos].min() > 10 * still[~chaos].max()
