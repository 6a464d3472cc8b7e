"""Domains beyond boxes: measures, distances, points, normals, pieces, and what joins them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import sciml
from sciml.data import archive
from sciml.errors import ProblemError
from sciml.geometry import Face, Interior, OnFaces, Opposite, Piece, Product, domain_from_config, draw
from sciml.geometry.domain import Combination
from sciml.geometry.quadrature import gauss
from sciml.geometry.sampling import Halvings

ELL = [(0, 0), (1, 0), (1, 1), (-1, 1), (-1, -1), (0, -1)]
SQUARE = [(0, 0), (1, 0), (1, 1), (0, 1)]
HOLE = [(0.25, 0.25), (0.75, 0.25), (0.75, 0.75), (0.25, 0.75)]
STAR = [(math.cos(a) * r, math.sin(a) * r) for a, r in zip(np.arange(10) * math.pi / 5, [1.0, 0.4] * 5, strict=True)]


def shapes():
    disk, square = sciml.Disk((0.5, -0.2), 1.5), sciml.Box(x=(0, 2), y=(0, 1))
    return {
        "disk": disk,
        "ball": sciml.Ball((1, 2, 3), 0.5),
        "ball in four coordinates": sciml.Ball((0, 1, 2, 3), 2.0, names=("x", "y", "z", "w")),
        "ell": sciml.Polygon(ELL),
        "ell, clockwise": sciml.Polygon(ELL[::-1]),
        "star": sciml.Polygon(STAR),
        "holed": sciml.Polygon(SQUARE, holes=[HOLE]),
        "union": disk | square,
        "difference": square - sciml.Disk((1, 0.5), 0.25),
        "intersection": disk & square,
        "two boxes": sciml.Box(x=(0, 1), y=(0, 1)) | sciml.Box(x=(1, 2), y=(0, 0.5)),
        "nested": (square - sciml.Disk((0.5, 0.5), 0.25)) - sciml.Disk((1.5, 0.5), 0.25),
        "cylinder": disk * sciml.Interval(t=(0, 2)),
        "slab": sciml.Interval(t=(0, 2)) * (square - sciml.Disk((1, 0.5), 0.25)),
    }


SHAPES = shapes()


def rng():
    return np.random.default_rng(0)


def inside(domain, count=2048):
    return draw(Interior(), domain, count, rng()).points[0].numpy()


def around(domain, count=128):
    """Points and normals on every side, side by side."""
    sample = draw(OnFaces(domain.sides), domain, count, rng())
    ends = np.cumsum(sample.faces)[:-1]
    points, normals = (np.split(array.numpy(), ends) for array in (sample.points[0], sample.normals))
    return dict(zip(domain.sides, zip(points, normals, strict=True), strict=True))


def lens(r, s, gap):
    """The area that two disks have in common."""
    a, b = (gap**2 + r**2 - s**2) / (2 * gap), (gap**2 + s**2 - r**2) / (2 * gap)
    return r**2 * math.acos(a / r) - a * math.sqrt(r**2 - a**2) + s**2 * math.acos(b / s) - b * math.sqrt(s**2 - b**2)


@pytest.mark.parametrize(
    ("domain", "measure"),
    [
        (SHAPES["disk"], 2.25 * math.pi),
        (SHAPES["ball"], math.pi / 6),
        (SHAPES["ball in four coordinates"], 8 * math.pi**2),
        (SHAPES["ell"], 3.0),
        (SHAPES["ell, clockwise"], 3.0),
        (SHAPES["holed"], 0.75),
        (SHAPES["star"], 5 * 0.4 * math.sin(math.pi / 5)),
        (SHAPES["cylinder"], 4.5 * math.pi),
    ],
)
def test_measures(domain, measure):
    assert domain.measure == pytest.approx(measure, rel=1e-12)


def test_points_of_a_sphere_in_four_coordinates_are_uniform():
    ((points, normals),) = around(SHAPES["ball in four coordinates"], 4096).values()
    np.testing.assert_allclose(points, [0, 1, 2, 3] + 2 * normals)
    # The moments of the uniform distribution on the unit sphere.
    assert np.abs(normals.mean(axis=0)).max() < 2e-3
    assert (normals**2).mean(axis=0) == pytest.approx([1 / 4] * 4, abs=2e-3)
    assert (normals**4).mean(axis=0) == pytest.approx([1 / 8] * 4, abs=2e-3)


@pytest.mark.parametrize(
    ("domain", "measure"),
    [
        (SHAPES["difference"], 2 - math.pi / 16),
        (SHAPES["two boxes"], 1.5),
        (SHAPES["nested"], 2 - math.pi / 8),
        (SHAPES["slab"], 4 - math.pi / 8),
        (sciml.Disk((0, 0), 1) & sciml.Disk((1, 0), 0.7), lens(1, 0.7, 1)),
        (sciml.Disk((0, 0), 1) | sciml.Disk((1, 0), 0.7), 1.49 * math.pi - lens(1, 0.7, 1)),
    ],
)
def test_areas_of_what_was_joined(domain, measure):
    assert domain.measure == pytest.approx(measure, rel=1e-11)


def test_the_volume_of_what_was_joined_is_estimated():
    ball = sciml.Ball((0, 0, 0), 1) - sciml.Ball((0, 0, 0), 0.5)
    assert ball.measure == pytest.approx(4 / 3 * math.pi * 7 / 8, rel=2e-3)


def test_areas_with_sharp_tips_and_many_holes():
    triangle = sciml.Polygon([(0, 0), (3, 0), (1, 2)])
    assert (triangle - sciml.Disk((1.2, 0.7), 0.3)).measure == pytest.approx(3 - math.pi * 0.09, rel=1e-7)
    # The hole touches nothing, cuts an edge, or almost touches a wall.
    assert (triangle - sciml.Disk((1.5, 0), 0.3)).measure == pytest.approx(3 - math.pi * 0.045, rel=1e-7)
    near = sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.3001), 0.3)
    assert near.measure == pytest.approx(1 - math.pi * 0.09, rel=1e-8)
    plate, area, generator = sciml.Box(x=(-1, 1), y=(-1, 1)), 4.0, np.random.default_rng(0)
    for center in np.stack(np.meshgrid([-0.7, 0.0, 0.7], [-0.7, 0.0, 0.7]), axis=-1).reshape(-1, 2):
        radius = generator.uniform(0.05, 0.2)
        plate, area = plate - sciml.Disk(tuple(center + generator.uniform(-0.1, 0.1, 2)), radius), area - math.pi * radius**2
    assert plate.measure == pytest.approx(area, rel=1e-7)


@pytest.mark.parametrize(
    ("domain", "lengths"),
    [
        (SHAPES["disk"], {"circle": 3 * math.pi}),
        (SHAPES["ball"], {"sphere": math.pi}),
        (SHAPES["ell"], {"edge 2": 2.0, "edge 5": 1.0}),
        (SHAPES["difference"], {"circle": math.pi / 2, "x=0": 1.0, "y=1": 2.0}),
        (SHAPES["two boxes"], {"x=0": 1.0, "x=1": 0.5, "x=2": 0.5, "y=0": 2.0, "y=0.5": 1.0, "y=1": 1.0}),
        (SHAPES["cylinder"], {"circle": 6 * math.pi, "t=0": 2.25 * math.pi}),
    ],
)
def test_sizes_of_pieces(domain, lengths):
    found = {name: sum(domain.extent(side) for side in domain.piece(name).faces) for name in lengths}
    assert found == pytest.approx(lengths, rel=0.01)


@pytest.mark.parametrize("name", SHAPES)
def test_points_lie_inside_and_on_the_boundary(name):
    domain = SHAPES[name]
    points = inside(domain)
    assert points.shape == (2048, len(domain.coordinates))
    assert (domain.distance(points) < 0).all()
    assert domain.contains(points).all()
    for side, (at, _) in around(domain).items():
        assert len(at) >= 8, side
        assert np.abs(domain.distance(at)).max() < 1e-12, side


def test_what_was_cut_off_along_a_side_is_not_inside():
    """Points on the sides of both, with nothing of the domain beside them, were; errors were told there."""
    ell = sciml.Box(x=(-1, 1), y=(-1, 1)) - sciml.Box(x=(0, 1), y=(-1, 0))
    gone = [[1.0, -0.5], [0.5, -1.0], [1.0, -1.0]]
    kept = [[0.0, -0.5], [0.5, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, -1.0], [-1.0, -1.0], [1.0, 1.0]]
    assert ell.contains([*gone, *kept]).tolist() == [False] * len(gone) + [True] * len(kept)


@pytest.mark.parametrize("name", SHAPES)
def test_normals_are_unit_vectors_that_point_outward(name):
    domain = SHAPES[name]
    step = 1e-5
    for at, normals in around(domain).values():
        assert np.linalg.norm(normals, axis=1) == pytest.approx(1, abs=1e-12)
        assert (domain.distance(at + step * normals) > 0).all()
        assert (domain.distance(at - step * normals) < 0).all()


def test_normals_are_orthogonal_to_edges_and_radial_on_circles():
    holed = SHAPES["holed"]
    for at, normals in around(holed).values():
        along = at[1:] - at[:1]
        assert np.abs((along * normals[1:]).sum(axis=1)).max() < 1e-12
    ((at, normals),) = around(SHAPES["disk"]).values()
    assert np.allclose(at, np.array([0.5, -0.2]) + 1.5 * normals, atol=1e-13)


def test_in_a_product_with_time_normals_have_no_part_in_time():
    sides = around(SHAPES["cylinder"])
    assert (sides[Piece("circle")][1][:, 2] == 0).all()
    assert (sides[Face("t", "lower")][1] == [0, 0, -1]).all()
    assert set(np.round(sides[Face("t", "upper")][0][:, 2], 12)) == {2.0}


def chi_square(counts, shares):
    """Pearson's statistic by its degrees of freedom: about 1 for random points, less for low-discrepancy ones."""
    expected = counts.sum() * np.asarray(shares) / np.sum(shares)
    return ((counts - expected) ** 2 / expected).sum() / (len(counts) - 1)


def test_points_are_uniform_by_area():
    x, y = (inside(SHAPES["disk"]) - [0.5, -0.2]).T
    assert chi_square(np.histogram((x**2 + y**2) / 2.25, bins=16, range=(0, 1))[0], [1] * 16) < 1
    assert chi_square(np.histogram(np.arctan2(y, x), bins=16, range=(-math.pi, math.pi))[0], [1] * 16) < 1
    radius = np.linalg.norm(inside(SHAPES["ball"]) - [1, 2, 3], axis=1)
    assert chi_square(np.histogram(8 * radius**3, bins=16, range=(0, 1))[0], [1] * 16) < 1
    x, y = inside(SHAPES["ell"]).T
    assert chi_square(np.array([(y < 0).sum(), ((y > 0) & (x < 0)).sum(), (x > 0).sum()]), [1, 1, 1]) < 1
    x, y = inside(SHAPES["two boxes"]).T
    assert chi_square(np.array([((x < 1) & (y < 0.5)).sum(), (y > 0.5).sum(), (x > 1).sum()]), [1, 1, 1]) < 1


def test_points_are_uniform_along_boundaries():
    ((at, normals),) = around(SHAPES["disk"], 256).values()
    assert chi_square(np.histogram(np.arctan2(*normals.T), bins=16, range=(-math.pi, math.pi))[0], [1] * 16) < 1
    ((at, _),) = around(SHAPES["ball"], 256).values()
    assert chi_square(np.histogram(at[:, 2], bins=16, range=(2.5, 3.5))[0], [1] * 16) < 1
    assert chi_square(np.histogram(at[:, 0], bins=16, range=(0.5, 1.5))[0], [1] * 16) < 1
    # Edges get points in proportion to their lengths, so that rows of a condition count alike along the boundary.
    counts = [len(at) for at, _ in around(SHAPES["ell"], 256).values()]
    assert chi_square(np.array(counts), [1, 1, 2, 2, 1, 1]) < 0.1


def test_a_square_polygon_gets_as_many_points_on_an_edge_as_a_box_on_a_face():
    polygon, box = sciml.Polygon(SQUARE), sciml.Box(x=(0, 1), y=(0, 1))
    assert [len(at) for at, _ in around(polygon).values()] == [len(at) for at, _ in around(box).values()]


def brute_distance(vertices, point):
    """The distance from a polygon's boundary by walking along it, and its sign by the angle that it turns through."""
    corners = [np.array(vertex, dtype=float) for vertex in vertices]
    nearest, turned = math.inf, 0.0
    for one, two in zip(corners, corners[1:] + corners[:1], strict=True):
        share = np.clip((point - one) @ (two - one) / ((two - one) @ (two - one)), 0, 1)
        nearest = min(nearest, float(np.linalg.norm(point - one - share * (two - one))))
        a, b = one - point, two - point
        turned += math.atan2(a[0] * b[1] - a[1] * b[0], a @ b)
    return -nearest if abs(turned) > math.pi else nearest


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["ell", "ell, clockwise", "star"]), st.floats(-1.5, 1.5), st.floats(-1.5, 1.5))
def test_distance_from_a_polygon(name, x, y):
    domain = SHAPES[name]
    vertices = domain.config["vertices"]
    expected = brute_distance(vertices, np.array([x, y]))
    found = float(domain.distance([[x, y]])[0])
    assert abs(found) == pytest.approx(abs(expected), abs=1e-12)
    assert found == pytest.approx(expected, abs=1e-12) or abs(expected) < 1e-9


def test_distances():
    assert SHAPES["disk"].distance([[0.5, -0.2], [0.5, 2.3]]) == pytest.approx([-1.5, 1.0])
    assert sciml.Box(x=(0, 1), y=(0, 2)).distance([[0.2, 1], [2, 3], [0.5, 2.5]]) == pytest.approx([-0.2, 2**0.5, 0.5])
    assert SHAPES["cylinder"].distance([[0.5, -0.2, 0.1], [0.5, 2.3, 3.0]]) == pytest.approx([-0.1, 2**0.5])
    assert SHAPES["holed"].distance([[0.5, 0.5], [0.1, 0.5]]) == pytest.approx([0.25, -0.1])


@settings(max_examples=100, deadline=None)
@given(st.floats(-1.2, 2.2), st.floats(-1.8, 1.4))
def test_unions_differences_and_intersections_hold_the_points_they_should(x, y):
    one, two = sciml.Disk((0.5, -0.2), 1.0), sciml.Box(x=(0, 2), y=(0, 1))
    at = [[x, y]]
    a, b = bool(one.contains(at)[0]), bool(two.contains(at)[0])
    if min(abs(one.distance(at)[0]), abs(two.distance(at)[0])) > 1e-6:
        assert bool((one | two).contains(at)[0]) is (a or b)
        assert bool((one & two).contains(at)[0]) is (a and b)
        assert bool((one - two).contains(at)[0]) is (a and not b)


def test_what_two_boxes_share_is_no_boundary():
    ell = SHAPES["two boxes"]
    for at, _ in around(ell).values():
        assert not ((np.abs(at[:, 0] - 1) < 1e-9) & (at[:, 1] < 0.5)).any()
    # The floor belongs to both, each with its own half.
    assert ell.piece("y=0").faces == (Piece("y=0", 0), Piece("y=0", 1))
    # A part of the boundary that both have in common is visited once.
    twice = sciml.Box(x=(0, 1), y=(0, 1)) | sciml.Box(x=(0.5, 2), y=(0, 1))
    assert twice.extent(Piece("y=0", 0)) + twice.extent(Piece("y=0", 1)) == pytest.approx(2, rel=0.01)


def test_pieces_are_named():
    channel = sciml.Polygon([(0, 0), (3, 0), (3, 1), (0, 1)], edges={"wall": [0, 2], "inlet": 3})
    assert channel.pieces == ("wall", "edge 1", "inlet")
    assert channel.piece("wall") == channel.edge(0, 2)
    assert SHAPES["difference"].face(x=0).faces == (Piece("x=0"),)
    assert SHAPES["cylinder"].face(t=0).faces == (Face("t", "lower"),)
    assert SHAPES["cylinder"].faces().faces == (Face("t", "lower"), Face("t", "upper"))
    assert SHAPES["cylinder"].boundary.resolve(SHAPES["cylinder"], "t") == (Piece("circle"),)
    ring = sciml.Disk((0, 0), 2, piece="outer") - sciml.Disk((0, 0), 1, piece="inner")
    assert ring.pieces == ("outer", "inner")


def test_corners_of_a_polygon():
    (corner,) = SHAPES["ell"].reentrant_corners()
    assert (corner.position, corner.edges) == ((0.0, 0.0), (0, 5))
    assert corner.angle == pytest.approx(1.5 * math.pi)
    assert corner.start == 0
    # The same corner, whichever way round the vertices are given.
    (same,) = SHAPES["ell, clockwise"].reentrant_corners()
    assert (same.position, same.angle, same.start) == (corner.position, corner.angle, corner.start)
    assert len(SHAPES["star"].reentrant_corners()) == 5
    assert [corner.angle / math.pi for corner in SHAPES["holed"].reentrant_corners()] == pytest.approx([1.5] * 4)
    assert sum(corner.angle for corner in SHAPES["star"].corners()) == pytest.approx(8 * math.pi)


@pytest.mark.parametrize("name", ["ell", "ell, clockwise", "star", "holed"])
def test_near_a_corner_the_polygon_lies_between_its_edges(name):
    domain = SHAPES[name]
    for corner in domain.corners():
        inner = corner.start + corner.angle * np.linspace(0.02, 0.98, 25)
        outer = corner.start + corner.angle + (2 * math.pi - corner.angle) * np.linspace(0.02, 0.98, 25)
        for angles, within in ((inner, True), (outer, False)):
            points = np.array(corner.position) + 1e-3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            assert (domain.contains(points) == within).all()
        for edge, angle in zip(corner.edges, (corner.start, corner.start + corner.angle), strict=True):
            point = np.array(corner.position) + 1e-3 * np.array([math.cos(angle), math.sin(angle)])
            (side,) = domain.edge(edge).faces
            _, (normals, *_), _ = domain.on_side(side, np.zeros((1, 1)))
            assert abs((point - corner.position) @ normals) < 1e-12


@pytest.mark.parametrize("name", SHAPES)
def test_domains_are_made_again_from_plain_values(name):
    domain = SHAPES[name]
    again = domain_from_config(domain.config)
    assert again == domain
    assert hash(again) == hash(domain)
    assert again.pieces == domain.pieces
    assert np.array_equal(inside(again, 64), inside(domain, 64))
    assert repr(domain)


def test_products():
    box = sciml.Box(x=(0, 1)) * sciml.Interval(t=(0, 2))
    assert box == sciml.Box(x=(0, 1), t=(0, 2))
    later = SHAPES["cylinder"].between("t", 1, 3)
    assert later.bounds["t"] == (1, 3)
    assert isinstance(later, Product)
    four = SHAPES["cylinder"] * sciml.Interval(z=(0, 1))
    assert four.coordinates == ("x", "y", "t", "z")
    lower, upper = draw(Opposite("z"), four, 64, rng()).points
    assert (upper - lower).numpy()[:, 3].tolist() == [1.0] * 64
    assert four.contains(lower.numpy()).all()
    two = sciml.Disk((0, 0), 1) * sciml.Disk((0, 0), 2, names=("p", "q"))
    assert two.sides == (Piece("circle", 0), Piece("circle", 1))
    assert around(two)[Piece("circle", 1)][1][:, :2].any() == 0


def test_polygons_of_shapely():
    shapely = pytest.importorskip("shapely")
    ring = shapely.Polygon(SQUARE, [HOLE])
    own = sciml.Polygon.from_shapely(ring)
    assert own.measure == pytest.approx(ring.area)
    points = rng().uniform(-0.5, 1.5, (200, 2))
    away = np.array([ring.boundary.distance(shapely.Point(at)) for at in points])
    within = np.array([ring.contains(shapely.Point(at)) for at in points])
    assert own.distance(points) == pytest.approx(np.where(within, -away, away))
    with pytest.raises(ProblemError, match="given: MultiPolygon"):
        sciml.Polygon.from_shapely(shapely.MultiPolygon([ring]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sciml.Disk((0, 0), -1), "radius must be a positive number"),
        (lambda: sciml.Disk((0, 0, 0), 1), "center must be 2 finite numbers"),
        (lambda: sciml.Ball((0, 0, 0), 1, names=("x", "y")), "3 different names"),
        (lambda: sciml.Polygon([(0, 0), (1, 0)]), "at least three pairs"),
        (lambda: sciml.Polygon([0, 1, 2]), "pairs of numbers"),
        (
            lambda: sciml.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]),
            r"edge 0 from \(0, 0\) to \(1, 1\) crosses or touches edge 2",
        ),
        (lambda: sciml.Polygon([(0, 0), (1, 0), (2, 0), (1, 0.0), (1, 1)]), "touches|turns back"),
        (lambda: sciml.Polygon([(0, 0), (2, 0), (1, 0)]), "turns back on itself"),
        (lambda: sciml.Polygon([*SQUARE, (0, 0)]), "name each vertex once"),
        (lambda: sciml.Polygon(SQUARE, holes=[[(2, 2), (3, 2), (3, 3)]]), "hole 0 at .* does not lie inside"),
        (lambda: sciml.Polygon(SQUARE, holes=[[(0.5, 0.5), (2, 0.5), (1, 0.6)]]), "crosses or touches"),
        (lambda: sciml.Polygon(SQUARE, edges={"inlet": 4}), "numbers from 0 to 3"),
        (lambda: sciml.Polygon(SQUARE).edge(7), "numbers from 0 to 3; given: 7"),
        (lambda: sciml.Disk((0, 0), 1).piece("circel"), "Did you mean 'circle'"),
        (lambda: sciml.Disk((0, 0), 1).face(x=1), "no such face; its pieces are 'circle'"),
        (lambda: sciml.Disk((0, 0), 1).faces(), "its pieces are 'circle'"),
        (lambda: sciml.Disk((0, 0), 1).between("t", 0, 1), "no such face"),
        (lambda: sciml.Disk((0, 0), 1) | sciml.Interval(x=(0, 1)), "joins domains with the same coordinates"),
        (lambda: sciml.Disk((0, 0), 1) & sciml.Disk((3, 0), 1), "nothing remains of Disk"),
        (lambda: sciml.Disk((0, 0), 1) - sciml.Disk((0, 0), 2), "the difference of the two domains is empty"),
        (lambda: sciml.Disk((0, 0), 1) * sciml.Interval(x=(0, 1)), "'x' is in two of them"),
        (lambda: sciml.Disk((0, 0), 1).distance([0, 1]), r"shape \(n, 2\)"),
        (
            lambda: sciml.Disk((0, 0), 1).boundary.resolve(sciml.Interval(t=(0, 1)), "t"),
            "no boundary apart from its time faces",
        ),
        (lambda: sciml.Disk((0, 0), 1).piece("circle").resolve(sciml.Polygon(SQUARE), None), "the pieces of Polygon"),
        (lambda: sciml.Box(x=(0, 1), y=(0, 1)).face(x=0).resolve(sciml.Disk((0, 0), 1), None), "has no such face"),
    ],
)
def test_bad_domains_are_refused(make, words):
    with pytest.raises(ProblemError, match=words):
        make()


def test_pieces_are_taken_off_a_region():
    box = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
    rest = box.boundary - box.face(x=0)
    assert rest.resolve(box, "t") == (Face("x", "upper"), Face("y", "lower"), Face("y", "upper"))
    assert (rest | box.face(x=0)).resolve(box, "t") == (*rest.resolve(box, "t"), Face("x", "lower"))
    assert (rest | (box.boundary - box.face(x=1))).resolve(box, "t") == box.boundary.resolve(box, "t")
    assert (rest | (box.boundary - box.faces("x"))).resolve(box, "t") == rest.resolve(box, "t")
    assert (box.faces("x") - box.face(x=0)).resolve(box, "t") == (Face("x", "upper"),)
    with pytest.raises(ProblemError, match="only named sides"):
        box.boundary - box.boundary
    with pytest.raises(ProblemError, match="empty region"):
        (box.boundary - box.faces()).resolve(box, "t")
    with pytest.raises(ProblemError, match="the piece 'circle'"):
        (box.boundary - sciml.Disk((0, 0), 1).piece("circle")).resolve(box, "t")


@pytest.mark.parametrize("name", ["ell", "ell, clockwise", "star", "holed"])
def test_the_singular_function_of_a_corner_is_harmonic_and_vanishes_on_both_edges(name):
    domain = SHAPES[name]
    for corner in domain.reentrant_corners():
        power = math.pi / corner.angle

        def singular(x, y, corner=corner, power=power):
            x, y = x - corner.position[0], y - corner.position[1]
            # The angle from the first edge, within [0, 2π).
            angle = torch.remainder(torch.atan2(y, x) - corner.start, 2 * math.pi)
            return torch.hypot(x, y) ** power * torch.sin(power * angle)

        for edge in corner.edges:
            (side,) = domain.edge(edge).faces
            at, _, _ = domain.on_side(side, np.linspace(0.1, 0.9, 5)[:, None])
            # A hair's breadth inside, since the edge at the angle 0 may be met from below by rounding.
            at = at - 1e-9 * domain.on_side(side, np.zeros((1, 1)))[1]
            assert singular(*torch.from_numpy(at).T).abs().max() < 1e-7
        angle = corner.start + 0.4 * corner.angle
        at = np.array(corner.position) + 0.01 * np.array([math.cos(angle), math.sin(angle)])
        second = torch.autograd.functional.hessian(singular, tuple(torch.tensor(at).unbind()))
        assert abs(float(second[0][0] + second[1][1])) < 1e-9 * abs(float(second[0][0]))


@pytest.mark.parametrize("name", SHAPES)
def test_descriptions_survive_files(name, tmp_path):
    path = tmp_path / "domain.pt"
    archive.write_atomic(path, archive.packed({"domain": SHAPES[name].config}))
    assert domain_from_config(archive.load_tensors(path)["domain"]) == SHAPES[name]


def test_a_box_contains_its_boundary_to_rounding():
    box = sciml.Box(x=(0, 1), y=(0, 3))
    points = np.array([[0, 0], [1, 3], [0.3, 3 + 1e-13], [-1e-14, 2], [0.5, 3.1], [1.01, 1], [np.nan, 1]])
    assert box.contains(points).tolist() == [True, True, True, True, False, False, False]
    assert box.contains(points[:2]).all()


@pytest.mark.parametrize(
    "domain", [sciml.Box(x=(0, 1), y=(0, 2)), sciml.Box(x=(0, 1), y=(0, 1), z=(0, 1)), sciml.Disk((0, 0), 1)], ids=str
)
def test_points_of_sides_lie_as_densely_as_each_place_asks_for(domain):
    """Their distance is halved up to four times around one place."""
    place = np.array([high for _, high in domain.bounds.values()]) * (np.arange(len(domain.bounds)) == 0)
    freedom = len(place) - 1

    def levels(points):
        away = np.linalg.norm(points - place, axis=1).clip(1e-12)
        return np.clip(np.floor(np.log2(0.5 / away)) + 1, 0, 4).astype(int)

    def asked(points, directions):
        return levels(points)[:, None]

    sides = OnFaces(tuple(domain.sides))
    even, many, finer = (
        draw(sides, domain, count**freedom, np.random.default_rng(0), how)
        for count, how in ((64, None), (1024, None), (64, Halvings(asked, range(len(place)))))
    )
    assert finer.normals.shape == finer.points[0].shape
    found, shares = (np.bincount(levels(each.points[0].numpy()), minlength=5) for each in (finer, many))
    wanted = shares / shares.sum() * len(even.points[0]) * 2.0 ** (freedom * np.arange(5))
    np.testing.assert_allclose(found, wanted, rtol=0.35)


@pytest.mark.parametrize("time", [sciml.Interval(t=(0, 1)), None], ids=["in time", "at rest"])
def test_points_lie_closer_along_space_alone_where_that_is_what_they_are_halved_for(time):
    """Towards a corner nine halvings take some hundred points, with time as without: they were 2^9 times as many."""
    square = sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((1, 1), 0.5)
    domain = square if time is None else square * time

    def levels(points):
        return np.clip(np.floor(-np.log2(points[:, :2].max(1).clip(1e-12))), 0, 9).astype(int)

    finer = Halvings(lambda points, directions: levels(points)[:, None], (0, 1))
    sample = draw(OnFaces(tuple(domain.sides)), domain, 64, np.random.default_rng(0), finer)
    counts = np.bincount(levels(sample.points[0].numpy()), minlength=10)
    assert counts.max() < 400
    assert counts[1:].min() > 30


def test_points_of_halved_cells_differ_in_every_coordinate():
    """On a side times time, where those at other times are other places of a slab's tiles."""
    domain, face = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1)), OnFaces((Face("y", "lower"),))
    finer = Halvings(lambda points, directions: (points[:, :1] < 0.5).astype(int), (0, 1))
    sample = draw(face, domain, 64, np.random.default_rng(0), finer)
    (points,) = sample.points
    halved = points[points[:, 0] < 0.5]
    assert len(halved) > 40
    for column in (0, 2):
        assert len(halved[:, column].unique()) == len(halved)


def test_points_lie_closer_along_the_directions_alone_that_ask_for_it():
    """Towards an edge: seven halvings across it take some hundred points, and lie as far apart along it as elsewhere."""
    cube, face = sciml.Box(x=(0, 1), y=(0, 1), z=(0, 1)), OnFaces((Face("x", "lower"),))

    def levels(points):
        return np.clip(np.floor(-np.log2(points[:, 1].clip(1e-12))), 0, 7).astype(int)

    def asked(points, directions):
        assert set(np.abs(directions).argmax(2).flatten()) == {1, 2}
        return levels(points)[:, None] * (np.abs(directions[:, :, 1]) > 0.5)

    (points,) = draw(face, cube, 256, np.random.default_rng(0), Halvings(asked, (0, 1, 2))).points
    counts = np.bincount(levels(points.numpy()), minlength=8)
    assert counts.max() < 2.5 * counts.min()
    along = points[points[:, 1] < 0.01][:, 2]
    assert np.histogram(along, 4, (0, 1))[0].min() > 0.1 * len(along)


def test_points_lie_closer_along_each_direction_as_often_as_it_asks():
    """Other numbers along either, at places that are no ends of cells, towards the upper ends: all of them lie inside."""
    cube, face = sciml.Box(x=(0, 1), y=(0, 1), z=(0, 1)), OnFaces((Face("x", "lower"),))

    def levels(points):
        away = (1.0 - points[:, 1:]).clip(1e-9)
        return np.clip(np.floor(np.log2(np.array([1 / 3, 0.2]) / away)) + 1, 0, [3, 2]).astype(int)

    def asked(points, directions):
        return np.take_along_axis(levels(points), np.abs(directions).argmax(2) - 1, axis=1)

    (points,) = draw(face, cube, 1024, np.random.default_rng(0), Halvings(asked, (0, 1, 2))).points
    points = points.numpy()
    assert points.min() >= 0
    assert points.max() <= 1
    count = np.zeros((4, 3), dtype=int)
    np.add.at(count, tuple(levels(points).T), 1)
    one, two = (np.diff([0, *(1 - first / 2.0 ** np.arange(last)), 1]) for first, last in ((1 / 3, 3), (0.2, 2)))
    wanted = 1024 * np.outer(one * 2.0 ** np.arange(4), two * 2.0 ** np.arange(3))
    np.testing.assert_allclose(count, wanted, rtol=0.3)
    assert len(np.unique(points, axis=0)) == len(points)


def test_no_place_of_a_polyhedron_goes_without_points():
    """A unit direction leads from triangle to triangle there, and nowhere within one."""
    corners = np.eye(4, 3, -1)
    triangles = corners[[(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]]
    for _ in range(3):
        one, two, three = triangles.transpose(1, 0, 2)
        parts = [(one, one + two, one + three), (two, two + three, two + one), (three, three + one, three + two)]
        halved = [np.stack([end, first / 2, second / 2], axis=1) for end, first, second in parts]
        triangles = np.concatenate([*halved, np.stack([one + two, two + three, three + one], axis=1) / 2])
    corners, numbers = np.unique(triangles.reshape(-1, 3), axis=0, return_inverse=True)
    solid = sciml.Polyhedron(corners, numbers.reshape(-1, 3))

    def levels(points):
        return np.clip(np.floor(-np.log2(np.linalg.norm(points, axis=1).clip(1e-9))), 0, 4).astype(int)

    finer = Halvings(lambda points, directions: levels(points)[:, None], (0, 1, 2))
    drawn = [draw(OnFaces(tuple(solid.sides)), solid, 256, np.random.default_rng(0), each) for each in (None, finer)]
    even, closer = (each.points[0].numpy() for each in drawn)
    # Around the corner three quarters of a disk lie on the three faces: four times as few at half the distance.
    near = len(even) * np.array([(np.linalg.norm(even, axis=1) < 0.5).mean() / 4**each for each in (1, 2, 3)])
    found = np.bincount(levels(closer), minlength=5)[2:5] / 4.0 ** np.arange(2, 5)
    assert (found > 0.5 * near * [0.75, 0.75, 1.0]).all()


def test_a_rule_of_very_many_nodes_is_one_of_parts():
    at, weights = gauss(20_000)
    assert len(at) >= 20_000
    assert math.isclose(weights @ at**5, 1 / 6, rel_tol=1e-12)


def pairwise(domain, points):
    """The signed distance of nested set operations, two parts at a time."""
    if not isinstance(domain, Combination):
        return domain.distance(points)
    first, second = (pairwise(part, points) for part in domain.parts)
    if domain.kind == "union":
        return np.minimum(first, second)
    return np.maximum(first, second if domain.kind == "intersection" else -second)


def test_distances_of_chains_are_those_of_two_parts_at_a_time():
    square, small, other = sciml.Box(x=(-1, 1), y=(-1, 1)), sciml.Disk((0, 0), 0.3), sciml.Disk((0.5, 0.5), 0.3)
    triangle = sciml.Polygon([(-0.9, -0.9), (0.9, -0.8), (0.5, 0.9)])
    chains = [
        square - small - other,
        square - (small | other | triangle),
        (square - small) | sciml.Disk((1, 1), 0.2) | (triangle & other),
        square & triangle & small,
        square - (triangle - small) - (triangle & other),
    ]
    points = np.random.default_rng(0).uniform(-1.2, 1.2, (500, 2))
    for chain in chains:
        assert np.array_equal(chain.distance(points), pairwise(chain, points)), chain


def test_sides_of_a_thin_domain_have_no_end_of_points():
    sliver = sciml.Polygon([(0, 0), (1, 0), (1, 1e-8)])
    for longest in (32, 8):
        drawn = draw(OnFaces(sliver.sides), sliver, 100, np.random.default_rng(0), longest=longest)
        assert drawn.faces == (100 * longest, 8, 100 * longest)


def test_points_in_a_thin_ring_are_those_of_one_sequence(monkeypatch):
    ring = sciml.Disk((0, 0), 1) - sciml.Disk((0, 0), 0.98)
    whole = draw(Interior(), ring, 1000, np.random.default_rng(3)).points[0]
    monkeypatch.setattr("sciml.geometry.sampling._AT_ONCE", 8)
    assert torch.equal(draw(Interior(), ring, 1000, np.random.default_rng(3)).points[0], whole)
