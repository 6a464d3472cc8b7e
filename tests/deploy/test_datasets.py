"""Solutions as datasets of xarray and files for ParaView."""

import meshio
import numpy as np
import pytest

import sciml
from sciml import d
from sciml.errors import FileError, ProblemError


class Cooling(sciml.Problem):
    """With units."""

    domain = sciml.Box(x=(0, 1), t=(0, 2))
    fields = ["u"]
    units = {"x": "m", "t": "s", "u": "K"}
    conditions = [sciml.Initial(u=lambda x: x * (1 - x)), sciml.Dirichlet(u=0.0)]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - 0.1 * d(u, x, x)


@pytest.fixture(scope="module")
def cooling():
    return sciml.fit(Cooling())


def test_a_dataset_has_coordinates_units_and_what_is_known(cooling):
    found = cooling.to_xarray(21)
    assert dict(found.sizes) == {"x": 21, "t": 21}
    assert (found["u"].attrs["units"], found["t"].attrs["units"]) == ("K", "s")
    assert float(found["u"].sel(x=0.5, t=1.0)) == pytest.approx(float(cooling(x=0.5, t=1.0)["u"]), abs=1e-12)
    assert found.attrs["problem"] == "Cooling"


def test_paraview_reads_what_is_inside(tmp_path):
    disk = sciml.fit(sciml.gallery.problem("poisson_disk_robin"))
    mesh = meshio.read(disk.to_vtk(tmp_path / "disk.vtu", 41))
    quads = mesh.cells_dict["quad"]
    used = np.unique(quads)
    x, y = mesh.points[used, 0], mesh.points[used, 1]
    assert disk.domain.contains(np.stack([x, y], axis=1)).all()
    assert np.abs(mesh.point_data["u"][used] - disk(x=x, y=y)["u"]).max() < 1e-12
    low, high = np.array(list(disk.bounds.values())).T
    # Cells cover the disk up to the stairs of its edge.
    area = len(quads) * np.prod((high - low) / 40)
    assert 0.85 < area / (np.pi / 4 * np.prod(high - low)) < 1
    with pytest.raises(FileError, match="exists and is kept"):
        disk.to_vtk(tmp_path / "disk.vtu")


def test_times_of_a_file_and_the_last_one(cooling, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with meshio.xdmf.TimeSeriesReader(cooling.to_vtk("rod.xdmf", 11, times=3)) as reader:
        points, cells = reader.read_points_cells()
        found = [reader.read_data(number) for number in range(reader.num_steps)]
    assert [each[0] for each in found] == [0.0, 1.0, 2.0]
    assert len(cells[0].data) == 10
    x = points[:, 0]
    assert found[1][1]["u"] == pytest.approx(cooling(x=x, t=np.ones_like(x))["u"], abs=1e-12)
    last = meshio.read(cooling.to_vtk("rod.vtu", 11))
    assert last.point_data["u"] == pytest.approx(found[2][1]["u"], abs=1e-12)


def test_five_coordinates_are_not_drawn():
    with pytest.raises(ProblemError, match="one to three coordinates"):
        sciml.fit(sciml.gallery.problem("poisson_5d"), seconds=20).to_vtk("u.vtu")
