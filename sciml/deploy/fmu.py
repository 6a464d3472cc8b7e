"""Functional mock-up units (FMI 2.0, co-simulation): a solution over time as a block for system simulators."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from string import Template

from sciml._text import extra, listed
from sciml.errors import ModelError, ProblemError

# What runs inside the unit: it needs Python with NumPy and onnxruntime, and nothing of this library.
_SLAVE = Template("""\
import json
import pathlib
from xml.etree.ElementTree import SubElement

import numpy
import onnxruntime
from pythonfmu import DefaultExperiment, Fmi2Causality, Fmi2Slave, Fmi2Variability, Real
from pythonfmu.enums import Fmi2Initial, Fmi2Status


class $name(Fmi2Slave):
    description = "$name: fields over time, as fitted; outside the bounds of time a step is discarded"

    def __init__(self, **given):
        super().__init__(**given)
        path = pathlib.Path(self.resources or pathlib.Path(__file__).parent) / "solution.onnx"
        self._session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        about = json.loads(self._session.get_modelmeta().custom_metadata_map["sciml.json"])
        self._bounds, self._fields, self._now = about["bounds"], about["fields"], about["bounds"]["$time"][0]
        self._kinds = {each.name: numpy.float32 if "(float)" in each.type else float for each in self._session.get_inputs()}
        self._held = [name for name in about["coordinates"] if name != "$time"]
        self.default_experiment = DefaultExperiment(*self._bounds["$time"])
        for name in self._held:
            setattr(self, name, sum(self._bounds[name]) / 2)
            self.register_variable(Real(name, causality=Fmi2Causality.input, variability=Fmi2Variability.continuous))
        for name in self._fields:
            setattr(self, name, 0.0)
            how = {"variability": Fmi2Variability.continuous, "initial": Fmi2Initial.calculated}
            self.register_variable(Real(name, causality=Fmi2Causality.output, **how))
        self._evaluate()

    def to_xml(self, *options, **others):
        # The standard asks for outputs that are calculated at the start to be named once more.
        root = super().to_xml(*options, **others)
        structure = root.find("ModelStructure")
        unknown = SubElement(structure, "InitialUnknowns")
        for each in structure.find("Outputs"):
            SubElement(unknown, "Unknown", {"index": each.get("index")})
        return root

    def _evaluate(self):
        at = {name: getattr(self, name) for name in self._held} | {"$time": self._now}
        values = self._session.run(self._fields, {name: numpy.array([at[name]], kind) for name, kind in self._kinds.items()})
        for name, value in zip(self._fields, values):
            setattr(self, name, float(value[0]))

    def setup_experiment(self, start_time, *others):
        self._now = start_time

    def exit_initialization_mode(self):
        self._evaluate()

    def do_step(self, current_time, step_size):
        low, high = self._bounds["$time"]
        self._now = current_time + step_size
        slack = 1e-9 * (high - low)
        if not low - slack <= self._now <= high + slack:
            self.log(f"$time = {self._now} is outside of {low} ... {high}, where $name was solved", Fmi2Status.discard)
            return False
        self._evaluate()
        return True
""")


def functional_mockup(name: str, time: str | None, coordinates: tuple[str, ...], graph: bytes) -> bytes:
    """The unit of a solution's graph: time is that of the simulation, the other coordinates are inputs, fields are outputs.

    Args:
        name: of the solution; the unit's model has it, too.
        time: the coordinate that is time.
        coordinates: of the graph.
        graph: the ONNX file that ``export`` made.

    Raises:
        ProblemError: there is no time.
        MissingExtraError: pythonfmu is not installed.
        ModelError: pythonfmu fails.

    References: Functional Mock-up Interface for Model Exchange and Co-Simulation, version 2.0.4, Modelica Association 2022;
    L. I. Hatledal and others, PythonFMU, SIMS 2020.
    """
    if time not in coordinates:
        raise ProblemError(f"a functional mock-up unit simulates over time; {name} has the coordinates {listed(coordinates)}")
    with extra("fmu", "functional mock-up units are made by pythonfmu"):
        import pythonfmu  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        script, held = Path(folder) / f"{name.lower()}_unit.py", Path(folder) / "solution.onnx"
        script.write_text(_SLAVE.substitute(name=name, time=time))
        held.write_bytes(graph)
        # In a process of its own: the builder imports the script, and changes the paths of modules.
        build = [sys.executable, "-m", "pythonfmu", "build", "-f", str(script), "-d", f"{folder}/built", str(held)]
        done = subprocess.run(build, capture_output=True, text=True, check=False)
        made = list(Path(folder, "built").glob("*.fmu"))
        if done.returncode != 0 or len(made) != 1:
            raise ModelError(f"pythonfmu made no unit of {name}: {done.stderr.strip()[-500:]}")
        return made[0].read_bytes()
