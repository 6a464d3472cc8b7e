"""Boxes, faces and the points on them."""

import numpy as np
import pytest

import sciml
from sciml.errors import ProblemError
from sciml.geometry import Face, Interior, OnFaces, Opposite, draw


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sciml.Box(), "at least one coordinate"),
        (lambda: sciml.Box(x=(1, 0)), "finite and increasing"),
        (lambda: sciml.Box(x=(0, 0)), "no points inside"),
        (lambda: sciml.Box(x=(0, float("nan"))), "finite and increasing"),
        (lambda: sciml.Box(x=3), "pair of numbers"),
        (lambda: sciml.Interval(x=(0, 1), t=(0, 1)), "exactly one coordinate"),
        (lambda: sciml.Box(x=(0, 1)).face(x=0.5), "x runs from 0 to 1"),
        (lambda: sciml.Box(x=(0, 1)).face(y=0), "no coordinate 'y'"),
        (lambda: sciml.Box(xx=(0, 1)).faces("x"), "Did you mean 'xx'"),
        (lambda: sciml.Box(x=(0, 1)).face(), "exactly one coordinate"),
    ],
)
def test_bad_domains_are_refused(make, words):
    with pytest.raises(ProblemError, match=words):
        make()


def test_boundary_leaves_time_out():
    box = sciml.Box(x=(0, 1), t=(0, 1))
    assert {face.coordinate for face in box.boundary.resolve(box, "t")} == {"x"}
    assert {face.coordinate for face in box.boundary.resolve(box, None)} == {"x", "t"}


def test_regions_unite():
    box = sciml.Box(x=(0, 1), y=(0, 1))
    assert len((box.face(x=0) | box.faces("x")).resolve(box, None)) == 2


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_every_face_is_covered_by_points_of_its_own(dimension):
    names = "xyz"[:dimension]
    box = sciml.Box(**dict.fromkeys(names, (-1.0, 2.0)))
    sample = draw(OnFaces(box.faces().resolve(box, None)), box, 256, rng())
    start = 0
    for face, count in zip(box.faces().resolve(box, None), sample.faces, strict=True):
        piece = sample.points[0][start : start + count].numpy()
        normals = sample.normals[start : start + count].numpy()
        start += count
        assert count == (1 if dimension == 1 else 256)
        column = names.index(face.coordinate)
        assert np.all(piece[:, column] == face.value(box))
        assert np.all(normals[:, column] == face.sign)
        assert np.all(np.abs(normals).sum(axis=1) == 1)
        for other in set(range(dimension)) - {column}:
            # Each sixteenth of every free edge holds its share of the points.
            counts = np.histogram(piece[:, other], bins=16, range=(-1, 2))[0]
            assert counts.min() >= 0.5 * count / 16
    assert start == len(sample.points[0])


def test_inside_is_filled_evenly():
    box = sciml.Box(x=(-1, 1), t=(0, 2))
    points = draw(Interior(), box, 1000, rng()).points[0].numpy()
    assert len(points) == 1000
    counts = np.histogram2d(points[:, 0], points[:, 1], bins=8, range=[(-1, 1), (0, 2)])[0]
    assert counts.min() >= 0.5 * 1000 / 64


def test_opposite_points_differ_in_one_coordinate():
    box = sciml.Box(x=(-1, 1), t=(0, 2))
    lower, upper = draw(Opposite("x"), box, 32, rng()).points
    assert np.all(lower[:, 0].numpy() == -1)
    assert np.all(upper[:, 0].numpy() == 1)
    assert np.array_equal(lower[:, 1], upper[:, 1])


def test_a_face_belongs_to_the_domain_that_uses_it():
    assert Face("x", "upper").value(sciml.Box(x=(0, 5))) == 5


def test_the_order_of_coordinates_is_part_of_a_domain():
    assert sciml.Box(x=(0, 1), t=(0, 2)) == sciml.Box(x=(0, 1), t=(0, 2))
    assert sciml.Box(x=(0, 1), t=(0, 2)) != sciml.Box(t=(0, 2), x=(0, 1))
