"""Pictures for papers: axes, slices, units, bands, colours that survive greyscale, animations."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import sciml
from sciml import d
from sciml.errors import FileError, ProblemError


class Relaxation(sciml.Problem):
    """Two fields of different units, one of them measured."""

    domain = sciml.Interval(t=(0, 4))
    fields = ["p", "k"]
    units = {"t": "a", "p": "kPa", "k": "1/a"}
    rate = sciml.Unknown(0.5, lower=0)
    conditions = [sciml.Initial(p=1.0, k=300.0)]

    @sciml.equation
    def falling(self, p, k, t):
        return d(p, t) + self.rate * p

    @sciml.equation
    def flat(self, p, k, t):
        return d(k, t)

    def measurements(self):
        t = np.linspace(0, 4, 15)
        return {"t": t, "p": np.exp(-0.7 * t) + 0.02 * np.random.default_rng(0).normal(size=15)}


@pytest.fixture(scope="module")
def relaxation():
    return sciml.fit(Relaxation())


@pytest.fixture(scope="module")
def wave():
    return sciml.fit(sciml.gallery.problem("wave_string"))


def test_units_stand_on_axes_and_fields_of_different_units_apart(relaxation):
    upper, lower = relaxation.plot().axes
    assert (upper.get_ylabel(), lower.get_ylabel(), lower.get_xlabel()) == ("p [kPa]", "k [1/a]", "t [a]")


def test_intervals_are_drawn_where_they_are_known(relaxation):
    (band,) = (each for each in relaxation.plot().axes[0].collections if type(each).__name__ == "FillBetweenPolyCollection")
    path = band.get_paths()[0].vertices
    at = path[np.isclose(path[:, 0], path[:, 0][len(path) // 4])]
    low, high = (float(each) for each in relaxation.interval(t=at[0, 0])["p"])
    assert (at[:, 1].min(), at[:, 1].max()) == pytest.approx((low, high), rel=1e-6)
    assert len(relaxation.plot(bands=False).axes[0].collections) == 1


def test_axes_fields_and_slices_are_chosen(wave):
    figure = Figure()
    axes = figure.subplots(1, 2)
    assert wave.plot(ax=axes[1], at={"t": [0.0, 0.5]}) is figure
    assert not axes[0].lines
    values = axes[1].lines[0].get_ydata()
    x = axes[1].lines[0].get_xdata()
    assert values == pytest.approx(wave(x=x, t=np.zeros_like(x))["u"])
    with pytest.raises(ProblemError, match="2 panels; ax= has 1"):
        wave.plot(ax=axes[0])
    with pytest.raises(ProblemError, match="no field 'w'"):
        wave.plot(fields="w")
    with pytest.raises(ProblemError, match="names 'y', which is no coordinate"):
        wave.plot(at={"y": 0.0})
    with pytest.raises(ProblemError, match="fixes every coordinate"):
        wave.plot(at={"x": 0.0, "t": 0.0})


def test_both_signs_are_white_at_zero_and_told_apart_without_colours(wave):
    axes = wave.plot().axes[0]
    mesh, lines = axes.collections[:2]
    low, high = mesh.get_clim()
    assert low == -high
    assert mesh.get_cmap().name == "RdBu_r"
    styles = {tuple(style[1] or ()) for style in lines.get_linestyles()}
    assert len(styles) == 2, "dashed below zero"
    positive = sciml.fit(sciml.gallery.problem("heat_rod")).plot().axes[0].collections
    assert positive[0].get_cmap().name == "viridis"
    grey = [np.dot(positive[0].get_cmap()(level)[:3], (0.299, 0.587, 0.114)) for level in np.linspace(0, 1, 64)]
    assert (np.diff(grey) > 0).all()


def test_squares_are_square_and_bars_have_names():
    figure = sciml.fit(sciml.gallery.problem("poisson_square")).plot()
    assert figure.axes[0].get_aspect() == 1.0
    assert {axes.get_ylabel() for axes in figure.axes} == {"y", "u"}


def test_an_animation_has_a_frame_for_each_time(wave, tmp_path):
    with Image.open(wave.animate("u", tmp_path / "u.gif", frames=4)) as film:
        assert film.n_frames == 4
    with pytest.raises(FileError, match=r"\.gif or \.mp4"):
        wave.animate("u", tmp_path / "u.avi")
    with pytest.raises(ProblemError, match="needs time and another coordinate"):
        sciml.fit(sciml.gallery.problem("harmonic_oscillator")).animate()
