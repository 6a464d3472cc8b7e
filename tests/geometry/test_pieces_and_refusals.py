"""Pieces lie where their names say; polygons that meet themselves and surfaces that leak are refused with the place."""

import math

import numpy as np
import pytest
from contracts.test_domain_protocol import ell_of_triangles

import sciml
from sciml.errors import ProblemError
from sciml.geometry import OnFaces, draw


def test_pieces_lie_where_their_names_say():
    channel = sciml.Polygon([(0, 0), (3, 0), (3, 1), (0, 1)], edges={"wall": [0, 2], "outlet": 1, "inlet": 3})
    channel = channel - sciml.Disk((1, 0.5), 0.2, piece="cylinder")
    where = {
        "wall": lambda x, y: np.minimum(np.abs(y), np.abs(y - 1)),
        "inlet": lambda x, y: np.abs(x),
        "outlet": lambda x, y: np.abs(x - 3),
        "cylinder": lambda x, y: np.abs(np.hypot(x - 1, y - 0.5) - 0.2),
    }
    assert set(channel.pieces) == set(where)
    for name, away in where.items():
        points = draw(OnFaces(channel.piece(name).faces), channel, 64, np.random.default_rng(0)).points[0].numpy()
        assert np.abs(away(*points.T)).max() < 1e-12, name
    pieces = {"floor": lambda x, y, z: z < 1e-6, "lid": lambda x, y, z: z > 1 - 1e-6}
    solid = sciml.Polyhedron(*ell_of_triangles(), pieces=pieces)
    lid = draw(OnFaces(solid.piece("lid").faces), solid, 64, np.random.default_rng(0)).points[0].numpy()
    assert np.abs(lid[:, 2] - 1).max() < 1e-6


@pytest.mark.parametrize(
    "vertices",
    [
        [(0, 0), (1, 1), (1, 0), (0, 1)],
        [(0, 0), (4, 0), (4, 4), (2, -1), (0, 4)],
        [(math.cos(0.8 * math.pi * k), math.sin(0.8 * math.pi * k)) for k in range(5)],
        [(0, 0), (2, 0), (2, 2), (1, 0), (0, 2)],
    ],
    ids=["bow tie", "spike through the floor", "pentagram", "vertex on an edge"],
)
def test_polygons_that_meet_themselves_are_refused_with_the_edges(vertices):
    with pytest.raises(ProblemError, match=r"edge \d from \(.*\) to \(.*\) crosses or touches edge \d from"):
        sciml.Polygon(vertices)
    with pytest.raises(ProblemError, match="crosses or touches"):
        sciml.Polygon([(-9, -9), (9, -9), (9, 9), (-9, 9)], holes=[vertices])


def test_crossing_is_found_wherever_two_vertices_of_a_convex_polygon_change_places():
    for count in range(4, 9):
        angles = 2 * math.pi * np.arange(count) / count
        corners = [(math.cos(angle), math.sin(angle)) for angle in angles]
        assert sciml.Polygon(corners).measure == pytest.approx(count / 2 * math.sin(2 * math.pi / count))
        for k in range(count - 1):
            swapped = [*corners]
            swapped[k], swapped[k + 1] = swapped[k + 1], swapped[k]
            with pytest.raises(ProblemError, match="crosses or touches"):
                sciml.Polygon(swapped)


def test_a_file_whose_surface_leaks_is_refused_with_the_place(tmp_path):
    trimesh = pytest.importorskip("trimesh")
    vertices, triangles = ell_of_triangles()
    path = tmp_path / "leaking.stl"
    trimesh.Trimesh(vertices, triangles[:-1]).export(path)
    with pytest.raises(
        ProblemError, match=r"the surface is not closed: 3 edges belong to one triangle alone, the first"
    ) as caught:
        sciml.Polyhedron.read(path)
    # The three corners of the triangle that is missing.
    missing = vertices[list(triangles[-1])]
    shown = [f"({x:g}, {y:g}, {z:g})" for x, y, z in missing]
    assert sum(each in str(caught.value) for each in shown) == 2
    trimesh.Trimesh(vertices, [triangles[0][::-1], *triangles[1:]], process=False).export(path)
    with pytest.raises(ProblemError, match="in the same sense by two triangles, the first from"):
        sciml.Polyhedron.read(path)


def test_faces_of_a_box_with_a_hole_are_what_is_left_of_them():
    box = sciml.Box(x=(0, 2), y=(0, 1))
    pierced = box - sciml.Disk((1, 0.5), 0.2)
    assert pierced.faces("y") == pierced.piece("y=0", "y=1")
    assert (box - sciml.Disk((0, 0.5), 0.2)).faces("x").faces == pierced.faces("x").faces
    with pytest.raises(sciml.errors.ProblemError, match="has no such face"):
        sciml.Disk((0, 0), 1).faces("x")
