"""The contract of a domain: bounds, measure, sides, signed distance, points by volume and area, normals, plain values."""

import json
import math
import pickle

import numpy as np
import pytest

import sciml
from sciml.errors import ProblemError
from sciml.geometry import Domain, Face, Interior, OnFaces, domain_from_config, draw

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
        "half a shell": (sciml.Ball((0, 0, 0), 1) - sciml.Ball((0, 0, 0), 0.5)) & sciml.Box(x=(-1, 1), y=(-1, 1), z=(0, 1)),
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
    if isinstance(domain, sciml.Polyhedron):
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


def test_every_class_of_domains_is_held_by_this_contract():
    def below(kind):
        return {kind, *(each for sub in kind.__subclasses__() for each in below(sub))}

    public = {each for each in below(Domain) if each.__module__.startswith("sciml.") and each.__name__[0] != "_"}
    held = {type(each) for each in shapes().values() if each is not None} | {sciml.Polyhedron}
    assert public - held == {Domain}


def test_bounds_hold_every_point_and_measure_is_the_volume(domain):
    assert tuple(domain.bounds) == domain.coordinates
    assert [*domain.bounds.values()] == [*zip(domain.lower, domain.upper, strict=True)]
    assert all(low < high for low, high in domain.bounds.values())
    assert domain.diameter == pytest.approx(math.dist(domain.lower, domain.upper))
    far = thrown(domain, 20_000, seed=4, margin=0.3)
    inside = far[domain.distance(far) < 0]
    assert ((inside >= domain.lower) & (inside <= domain.upper)).all()
    whole = math.prod(high - low + 0.6 for low, high in domain.bounds.values())
    share = len(inside) / len(far)
    assert domain.measure == pytest.approx(share * whole, abs=5 * whole * math.sqrt(share * (1 - share) / len(far)))


def test_the_distance_is_negative_inside_and_at_most_the_way_to_the_boundary(domain):
    points = thrown(domain, 2000, seed=5, margin=0.2)
    away = domain.distance(points)
    assert away.shape == (2000,)
    assert np.array_equal(domain.contains(points), away <= 1e-9 * domain.thickness)
    other = points[::-1]
    # Its size is at most that of the distance to the boundary, so it changes by no more than the way between two points.
    assert (np.abs(away - away[::-1]) <= np.linalg.norm(points - other, axis=1) + 1e-9).all()
    for wrong in (points[:, :-1], points[0], np.zeros((3, points.shape[1] + 1))):
        with pytest.raises(ProblemError, match="points must have shape"):
            domain.distance(wrong)


def test_sides_have_points_normals_and_extents(domain):
    assert len(set(domain.sides)) == len(domain.sides) > 0
    generator = np.random.default_rng(6)
    for side in domain.sides:
        unit = generator.random((300, domain.freedom(side)))
        points, normals, kept = domain.on_side(side, unit)
        assert points.shape == normals.shape == (300, len(domain.coordinates))
        assert kept.shape == (300,)
        assert domain.extent(side) > 0
        assert np.abs(domain.distance(points[kept])).max() < 1e-9 * domain.diameter
        assert np.linalg.norm(normals[kept], axis=1) == pytest.approx(1)
        assert kept.mean() == pytest.approx(domain.kept(side), abs=0.15)
        if isinstance(side, Face):
            column = domain.coordinates.index(side.coordinate)
            assert (points[kept][:, column] == side.value(domain)).all()
            assert (normals[kept][:, column] == side.sign).all()


def test_the_rule_of_quadrature_integrates(domain):
    rule = domain.quadrature(200)
    if rule is None:
        return
    points, weights = rule
    assert (domain.distance(points) < 0).all()
    assert weights.sum() == pytest.approx(1, rel=1e-12)
    finer, others = domain.quadrature(400)
    smooth = [np.cos(at @ np.arange(1.0, 1 + at.shape[1]) / domain.diameter) for at in (points, finer)]
    assert weights @ smooth[0] == pytest.approx(others @ smooth[1], rel=1e-6)


def test_plain_values_make_the_domain_again(domain):
    plain = json.loads(json.dumps(domain.config))
    again = domain_from_config(plain)
    assert again == domain
    assert hash(again) == hash(domain)
    assert again.sides == domain.sides
    assert repr(again) == repr(domain).replace("Interval", "Box")  # two names of one domain
    assert not repr(domain).startswith("<")
    assert pickle.loads(pickle.dumps(domain)) == domain
    assert domain != sciml.Box(other=(0, 1))
