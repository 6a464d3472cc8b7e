"""Every domain against its own signed distance: points uniform by volume and area, normals, pieces; and what is refused."""

import math

import numpy as np
import pytest

import sciml
from sciml.errors import ProblemError
from sciml.geometry import Interior, OnFaces, draw

SQUARE = [(0, 0), (1, 0), (1, 1), (0, 1)]
HOLE = [(0.25, 0.3), (0.7, 0.3), (0.7, 0.75), (0.25, 0.6)]
# No walls of the shapes below lie on the lines of these grids.
CELLS = {1: 24, 2: 7, 3: 5, 4: 3}


def ell_of_triangles():
    """An L-shaped prism as a surface of triangles."""
    outline = np.array([(0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2)], dtype=float)
    flat = [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]
    vertices = np.concatenate([np.insert(outline, 2, 0, axis=1), np.insert(outline, 2, 1, axis=1)])
    walls = [half for k in range(6) for m in [(k + 1) % 6] for half in ((k, m, m + 6), (k, m + 6, k + 6))]
    return vertices, [*(each[::-1] for each in flat), *(tuple(v + 6 for v in each) for each in flat), *walls]


@pytest.fixture(scope="module")
def solid(tmp_path_factory):
    """The prism, by way of a file."""
    trimesh = pytest.importorskip("trimesh")
    path = tmp_path_factory.mktemp("stl") / "ell.stl"
    trimesh.Trimesh(*ell_of_triangles()).export(path)
    return sciml.Polyhedron.read(path, pieces={"floor": lambda x, y, z: z < 1e-6, "lid": lambda x, y, z: z > 1 - 1e-6})


def shapes():
    disk, box = sciml.Disk((0.5, -0.2), 1.2), sciml.Box(x=(0, 2), y=(0, 1))
    return {
        "interval": sciml.Interval(x=(-1, 2)),
        "rectangle": box,
        "box": sciml.Box(x=(0, 2), y=(0, 1), z=(-1, 1)),
        "disk": disk,
        "ball": sciml.Ball((1, 2, 3), 0.7),
        "polygon with a hole": sciml.Polygon(SQUARE, holes=[HOLE]),
        "union": disk | box,
        "difference": box - sciml.Disk((1, 0.5), 0.25),
        "intersection": disk & box,
        "half a shell": (sciml.Ball((0, 0, 0), 1) - sciml.Ball((0, 0, 0), 0.5))
        & sciml.Box(x=(-1, 1), y=(-1, 1), z=(0, 1)),
        "disk in time": disk * sciml.Interval(t=(0, 2)),
        "holed plate in time": (box - sciml.Disk((1, 0.5), 0.25)) * sciml.Interval(t=(0, 1)),
        "solid": None,
    }


NAMES = tuple(shapes())


@pytest.fixture(params=NAMES)
def domain(request):
    found = shapes()[request.param]
    return request.getfixturevalue("solid") if found is None else found


def cells_of(domain, points, count=None):
    """The number of the cell of a grid over the domain's bounds that each point lies in."""
    count = count or CELLS[len(domain.coordinates)]
    lower, upper = np.array(domain.lower), np.array(domain.upper)
    index = np.clip(((points - lower) / (upper - lower) * count).astype(int), 0, count - 1)
    return np.ravel_multi_index(tuple(index.T), (count,) * len(lower))


def chi_squared(found, expected, size, noise):
    """Pearson's statistic by its degrees of freedom, of shares of cells; about 1 or less if the points are uniform.

    ``size`` and ``noise`` are the numbers of points behind the shares found and expected. Cells that are hardly there join.
    """
    order = np.argsort(expected)[::-1]
    found, expected = found[order], expected[order]
    enough = max(2, int((expected * size >= 5).sum()))
    found = np.append(found[:enough], found[enough:].sum())
    expected = np.append(expected[:enough], expected[enough:].sum())
    there = expected > 0
    assert found[~there].sum() <= 5 / size
    gap = (found - expected)[there] ** 2 / expected[there]
    return gap.sum() / (1 / size + 1 / noise) / (there.sum() - 1)


def shares(domain, points, weights=None):
    count = CELLS[len(domain.coordinates)] ** len(domain.coordinates)
    weights = np.ones(len(points)) if weights is None else weights
    return np.bincount(cells_of(domain, points), weights=weights, minlength=count) / weights.sum()


def thrown(domain, count, seed=0, margin=0.0):
    """Independent uniform points of the box around a domain, or of one somewhat wider."""
    lower, upper = np.array(domain.lower), np.array(domain.upper)
    return np.random.default_rng(seed).uniform(lower - margin, upper + margin, (count, len(lower)))


def test_points_inside_are_uniform_by_volume_and_everywhere(domain):
    points = draw(Interior(), domain, 4096, np.random.default_rng(1)).points[0].numpy()
    other = thrown(domain, 60_000)
    other = other[domain.distance(other) < 0]
    expected, found = shares(domain, other), shares(domain, points)
    assert chi_squared(found, expected, len(points), len(other)) < 0.8
    assert (found[expected > 12 / len(points)] > 0).all()
    assert len(other) / 60_000 == pytest.approx(domain.filling, abs=4 * math.sqrt(0.25 / 60_000))


def test_points_on_the_boundary_are_uniform_by_area_and_everywhere(domain):
    """Against points thrown into a thin layer about the surface of the signed distance, which knows nothing of sides."""
    sides = domain.sides
    sample = draw(OnFaces(sides), domain, 512, np.random.default_rng(1))
    points = sample.points[0].numpy()
    extents = np.array([domain.extent(side) for side in sides])
    weights = np.repeat(extents / sample.faces, sample.faces)
    if len(domain.coordinates) == 1:
        assert sorted(points[:, 0]) == list(domain.bounds["x"])
        return
    thin = 0.01
    layer = thrown(domain, 400_000 if len(domain.coordinates) < 4 else 100_000, margin=thin)
    if domain.config["kind"] == "Polyhedron":
        layer = layer[:80_000]
    layer = layer[np.abs(domain.distance(layer)) < thin]
    expected, found = shares(domain, layer), shares(domain, points, weights)
    effective = weights.sum() ** 2 / (weights**2).sum()
    assert chi_squared(found, expected, effective, len(layer)) < 0.8
    assert (found[expected > 20 / effective] > 0).all()


def test_the_statistic_sees_points_that_are_not_uniform():
    disk = sciml.Disk((0, 0), 1)
    radius, angle = np.random.default_rng(0).random((2, 4096)) * [[1], [2 * math.pi]]
    other = thrown(disk, 60_000)
    expected = shares(disk, other[disk.distance(other) < 0])
    crowded, even = (np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1) for r in (radius, np.sqrt(radius)))
    assert chi_squared(shares(disk, crowded), expected, 4096, len(other)) > 10
    assert chi_squared(shares(disk, even), expected, 4096, len(other)) < 2


def test_normals_are_the_slopes_of_the_signed_distance(domain):
    for side in domain.sides:
        sample = draw(OnFaces((side,)), domain, 128, np.random.default_rng(2))
        points, normals = sample.points[0].numpy(), sample.normals.numpy()
        step = 1e-5
        moves = step * np.eye(points.shape[1])
        slopes = [(domain.distance(points + move) - domain.distance(points - move)) / (2 * step) for move in moves]
        slopes = np.stack(slopes, axis=1)
        # At corners the distance has no slope: few points are as near to one as a step.
        smooth = np.abs(np.linalg.norm(slopes, axis=1) - 1) < 1e-3
        assert smooth.mean() > 0.95, side
        assert slopes[smooth] == pytest.approx(normals[smooth], abs=1e-3), side
        assert (domain.distance(points + 1e-4 * normals)[smooth] > 0).all(), side
        assert np.linalg.norm(normals, axis=1) == pytest.approx(1)


def test_every_named_piece_has_points_of_its_own(domain):
    names = domain.pieces
    assert len(set(names)) == len(names)
    every = [side for name in names for side in domain.piece(name).resolve(domain, None)]
    assert sorted(map(repr, every)) == sorted(map(repr, domain.sides))
    everything = draw(OnFaces(domain.sides), domain, 64, np.random.default_rng(3)).points[0].numpy()
    assert (np.abs(domain.distance(everything)) < 1e-9).all()
    for name in names:
        sides = domain.piece(name).resolve(domain, None)
        assert all(side.describe(domain) == name for side in sides)
        assert sum(domain.extent(side) for side in sides) > 0


def test_pieces_lie_where_their_names_say(solid):
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
