"""Export of values: a solution on a grid for xarray, and on points, lines and cells for ParaView (VTK, XDMF by meshio)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sciml._text import extra, listed
from sciml.data import archive
from sciml.errors import FileError, ProblemError
from sciml.geometry import Box
from sciml.geometry.coordinates import points_along
from sciml.plots import living, on_grid

if TYPE_CHECKING:
    import xarray

    from sciml.solution import Solution

_CELLS = {1: "line", 2: "quad", 3: "hexahedron"}
# The corners of a cell in the order of VTK, as steps along each coordinate.
_CORNERS: dict[int, list[tuple[int, ...]]] = {
    1: [(0,), (1,)],
    2: [(0, 0), (1, 0), (1, 1), (0, 1)],
    3: [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)],
}
_COUNTS = {1: 1000, 2: 200, 3: 50}


def to_xarray(solution: Solution, resolution: int | None = None) -> xarray.Dataset:
    """The fields of a solution on a grid over its bounds as an xarray ``Dataset``, NaN outside the domain.

    Args:
        solution: what ``fit`` or ``baseline`` returned.
        resolution: points along each coordinate; 1,000 along one, 200 of two, 50 of more.

    Returns:
        A dataset with a dimension for each coordinate and a variable for each field, their units as attributes where they are
        known; attributes say the problem, whether it is a success, and the unknown constants.

    Raises:
        MissingExtraError: xarray is not installed.

    Example:
        >>> import sciml
        >>> heat = sciml.fit(sciml.gallery.problem("heat_rod")).to_xarray(11)
        >>> dict(heat.sizes)
        {'x': 11, 't': 11}

    Reference: S. Hoyer and J. Hamman, xarray: N-D labeled arrays and datasets in Python, Journal of Open Research Software 5
    (2017).
    """
    with extra("export", "to_xarray needs xarray"):
        import xarray
    axes = _axes(solution, resolution, solution.coordinates)
    values = _on_grid(solution, axes)
    units = solution.units
    data = {name: (list(axes), each, {"units": units[name]} if name in units else {}) for name, each in values.items()}
    along = {name: (name, each, {"units": units[name]} if name in units else {}) for name, each in axes.items()}
    about = {"problem": solution.name, "success": int(solution.success), "message": solution.message}
    errors = {f"estimated_error.{name}": value for name, value in solution.estimated_error.items()}
    return xarray.Dataset(data, along, about | solution.constants | errors)


def to_vtk(
    solution: Solution, path: str | Path, resolution: int | None = None, times: int = 21, *, overwrite: bool = False
) -> Path:
    """Write the fields of a solution for ParaView: ``.vtu`` or ``.vtk`` at the last time, ``.xdmf`` at several times.

    Args:
        solution: of one to three coordinates beside time.
        path: where to write; the end says the format.
        resolution: points along each coordinate in space; cells with a corner outside the domain are left out.
        times: the number of times of an ``.xdmf`` file, beside which the values lie in ``.h5``.
        overwrite: whether a file that is there may be replaced.

    Raises:
        ProblemError: there are more than three coordinates beside time.
        FileError: the path exists, or cannot be written.
        MissingExtraError: meshio is not installed.

    Reference: N. Schlömer, meshio: Tools for mesh files.
    """
    with extra("export", "to_vtk needs meshio"):
        import meshio
    path = Path(path)
    time = str("t" if solution.problem is None else solution.problem.time)
    space = [name for name in solution.coordinates if name != time]
    if len(space) not in _CELLS:
        raise ProblemError(f"to_vtk draws one to three coordinates beside time; given: {listed(space)}")
    archive.check_free(path, overwrite)
    axes = _axes(solution, resolution, space)
    low, high = solution.bounds[time] if time in solution.coordinates else (0.0, 0.0)
    moments = np.linspace(low, high, times) if path.suffix == ".xdmf" and high > low else [high]
    grid = np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1)
    shape = grid.shape[:-1]
    numbers = np.arange(grid[..., 0].size).reshape(shape)
    cells = np.stack(
        [
            numbers[tuple(slice(step, size - 1 + step) for step, size in zip(steps, shape, strict=True))].ravel()
            for steps in _CORNERS[len(space)]
        ],
        axis=1,
    )
    points = np.zeros((numbers.size, 3))
    points[:, : len(space)] = grid.reshape(-1, len(space))
    values = [_on_grid(solution, axes | ({time: np.array([moment])} if high > low else {})) for moment in moments]
    found = [{name: each.ravel() for name, each in at.items()} for at in values]
    # Where a field means nothing since it lives elsewhere stays not a number; outside all of the domain there are no cells.
    there = ~np.all([np.isnan(each) for each in found[0].values()], axis=0)
    cells = cells[there[cells].all(axis=1)]
    mesh = [(_CELLS[len(space)], cells)]
    try:
        if path.suffix != ".xdmf":
            meshio.Mesh(points, mesh, point_data=found[0]).write(path)
        else:
            with meshio.xdmf.TimeSeriesWriter(path) as writer:
                writer.write_points_cells(points, mesh)
                for moment, each in zip(moments, found, strict=True):
                    writer.write_data(float(moment), point_data=each)
    except (OSError, meshio.WriteError, KeyError) as error:
        raise FileError(f"{path} cannot be written: {error}") from error
    return path


def _axes(solution: Solution, resolution: int | None, names: Any) -> dict[str, np.ndarray]:
    count = points_along(resolution, _COUNTS.get(len(names), _COUNTS[3]))
    return {name: np.linspace(*solution.bounds[name], count) for name in names}


def _on_grid(solution: Solution, axes: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The fields on all combinations, axes in the order given."""
    ordered = {name: axes[name] for name in solution.coordinates}
    grid = dict(zip(ordered, np.meshgrid(*ordered.values(), indexing="ij"), strict=True))
    shape = next(iter(grid.values())).shape
    inside = np.ones(shape, dtype=bool)
    if not isinstance(solution.domain, Box):
        inside = solution.domain.contains(np.stack([each.ravel() for each in grid.values()], axis=1)).reshape(shape)
    return on_grid(partial(living, solution), solution.fields, grid, inside)
