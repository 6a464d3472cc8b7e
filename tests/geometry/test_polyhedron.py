"""Solids inside closed surfaces of triangles, and files of them."""

import copy
import pickle
import sys

import numpy as np
import pytest

import sciml
from sciml import d
from sciml.errors import FileError, MissingExtraError, ProblemError
from sciml.geometry import Interior, OnFaces, Piece, domain_from_config, draw

# A cube, two triangles a side.
CORNERS = np.array([(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)], dtype=float)
QUADS = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
SIDES = [half for a, b, c, e in QUADS for half in ((a, b, c), (a, c, e))]
CUBE = sciml.Polyhedron(CORNERS, SIDES, pieces={"floor": lambda x, y, z: z < 1e-9, "lid": lambda x, y, z: z > 1 - 1e-9})


def rng():
    return np.random.default_rng(0)


def ell():
    """An L-shaped prism, by triangles: not convex."""
    outline = np.array([(0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2)], dtype=float)
    flat = [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]
    vertices = np.concatenate([np.insert(outline, 2, 0, axis=1), np.insert(outline, 2, 1, axis=1)])
    walls = [half for k in range(6) for m in [(k + 1) % 6] for half in ((k, m, m + 6), (k, m + 6, k + 6))]
    return sciml.Polyhedron(vertices, [*(each[::-1] for each in flat), *(tuple(v + 6 for v in each) for each in flat), *walls])


def test_a_cube_is_the_box():
    box = sciml.Box(x=(0, 1), y=(0, 1), z=(0, 1))
    points = rng().uniform(-0.5, 1.5, (2000, 3))
    assert CUBE.distance(points) == pytest.approx(box.distance(points), abs=1e-12)
    assert CUBE.measure == pytest.approx(1)
    assert CUBE.pieces == ("floor", "lid", "surface")
    assert [CUBE.extent(side) for side in CUBE.sides] == pytest.approx([1, 1, 4])


def test_a_prism_is_the_polygon_times_an_interval():
    plane = sciml.Polygon([(0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2)]) * sciml.Interval(z=(0, 1))
    points = rng().uniform(-0.5, 2.5, (2000, 3))
    assert ell().distance(points) == pytest.approx(plane.distance(points), abs=1e-12)
    assert ell().measure == pytest.approx(3)


def test_the_sense_of_triangles_does_not_matter_as_long_as_it_is_one():
    inward = sciml.Polyhedron(CORNERS, [side[::-1] for side in SIDES])
    assert inward.measure == pytest.approx(1)
    sample = draw(OnFaces(inward.sides), inward, 64, rng())
    points, normals = sample.points[0].numpy(), sample.normals.numpy()
    assert (inward.distance(points + 1e-6 * normals) > 0).all()
    assert (inward.distance(points - 1e-6 * normals) < 0).all()


def test_points_are_uniform_by_volume_and_area():
    points = draw(Interior(), ell(), 3000, rng()).points[0].numpy()
    thirds = [(points[:, 0] > 1).sum(), (points[:, 1] > 1).sum(), (points[:, :2] < 1).all(axis=1).sum()]
    assert thirds == pytest.approx([1000] * 3, abs=60)
    floor = draw(OnFaces((Piece("floor"),)), CUBE, 1024, rng())
    counts = np.histogram2d(*floor.points[0].numpy()[:, :2].T, bins=4, range=[(0, 1), (0, 1)])[0]
    assert counts == pytest.approx(np.full((4, 4), 64), abs=16)
    assert (floor.normals.numpy() == [0, 0, -1]).all()


def test_a_solid_is_made_again_and_can_be_cut():
    again = domain_from_config(CUBE.config)
    assert again == CUBE
    assert again.pieces == CUBE.pieces
    cut = CUBE - sciml.Ball((0.5, 0.5, 0.5), 0.25)
    assert cut.pieces == ("floor", "lid", "surface", "sphere")
    assert cut.measure == pytest.approx(1 - 4 / 3 * np.pi / 64, rel=2e-3)


class Slab(sciml.Problem):
    domain = CUBE
    fields = ["u"]
    conditions = [
        sciml.Dirichlet(u=0.0, on=domain.piece("floor")),
        sciml.Dirichlet(u=1.0, on=domain.piece("lid")),
        sciml.Neumann(u=0.0, on=domain.piece("surface")),
    ]

    @sciml.equation
    def conduction(self, u, x, y, z):
        return d(u, x, x) + d(u, y, y) + d(u, z, z)

    def reference(self, x, y, z):
        return z


def test_a_problem_in_a_solid():
    solution = sciml.fit(Slab())
    assert solution.success
    assert solution.error(resolution=10)["u"] < 1e-9


def test_surfaces_come_from_files(tmp_path):
    trimesh = pytest.importorskip("trimesh")
    path = tmp_path / "cube.stl"
    trimesh.Trimesh(CORNERS, SIDES).export(path)
    solid = sciml.Polyhedron.read(path, pieces={"floor": lambda x, y, z: z < 1e-6})
    assert solid.measure == pytest.approx(1)
    assert solid.pieces == ("floor", "surface")
    (tmp_path / "bad.stl").write_text("solid nothing")
    with pytest.raises(FileError, match=r"bad\.stl"):
        sciml.Polyhedron.read(tmp_path / "bad.stl")
    with pytest.raises(FileError, match="no such file"):
        sciml.Polyhedron.read(tmp_path / "none.stl")


def test_without_trimesh_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "trimesh", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sciml\[geometry\]'"):
        sciml.Polyhedron.read(tmp_path / "cube.stl")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sciml.Polyhedron(CORNERS[:, :2], SIDES), r"vertices must have three finite numbers each; .* \(8, 2\)"),
        (lambda: sciml.Polyhedron(CORNERS, [(0, 1, 9)]), "numbers of vertices, from 0 to 7"),
        (lambda: sciml.Polyhedron(CORNERS, SIDES[:-1]), "the surface is not closed"),
        (lambda: sciml.Polyhedron(CORNERS, [SIDES[0][::-1], *SIDES[1:]]), "in different senses"),
        (lambda: sciml.Polyhedron(CORNERS, SIDES, pieces={"roof": lambda x, y, z: z > 2}), "'roof' has none"),
        (lambda: sciml.Polyhedron(CORNERS, SIDES, pieces={"a": [0, 1], "b": [1]}), "'b' is on two pieces"),
    ],
)
def test_bad_surfaces_are_refused(make, words):
    with pytest.raises(ProblemError, match=words):
        make()


@pytest.mark.parametrize("domain", [CUBE, CUBE - sciml.Ball((0, 0, 0), 0.5), sciml.Disk((0, 0), 1) * sciml.Interval(t=(0, 1))])
def test_domains_can_be_copied_and_pickled(domain):
    for again in (copy.deepcopy(domain), pickle.loads(pickle.dumps(domain))):
        assert again == domain
        assert again.bounds == domain.bounds
