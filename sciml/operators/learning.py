"""Learned operators: what networks between functions share, their inputs on the grid, their loss and how they are trained.

The loss is that of every fit: rows whose mean squares are weighed, here the relative L2 error of each pair, so solvers, early
stopping, schedulers and checkpoints are those of ``fit``.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
import scipy
import torch
from torch import Tensor, nn

from sciml._text import listed, whole
from sciml.errors import ModelError
from sciml.geometry import Interior, PointSet
from sciml.operators.codes import Operator, Scaling, parts_of
from sciml.operators.family import Axes, mesh_points
from sciml.operators.pairs import POINT, Pairs
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Term
from sciml.solvers import EarlyStopping, FirstOrder, Objective
from sciml.solvers.batching import BatchSize
from sciml.solvers.journal import Journal
from sciml.solvers.residuals import ResidualSystem
from sciml.strategies.search import Log
from sciml.strategies.training import Training
from sciml.typing import Array

_PAIRS = "pairs"
MOST_STEPS, LEAST_STEPS, LOOKS = 20_000, 50, 40
_TIMED = 3


@dataclass(frozen=True)
class Frame:
    """Where an operator lives: its inputs and outputs by name, their grids, and the coordinates that are periodic."""

    inputs: Mapping[str, Axes]
    fields: tuple[str, ...]
    axes: Axes
    points: Array | None = None
    periodic: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Pairs) -> Frame:
        """That of pairs."""
        if pairs.points is not None:
            low, high = pairs.points.min(axis=0), pairs.points.max(axis=0)
            bounds = {str(number): (float(low[number]), float(high[number])) for number in range(len(low))}
        else:
            # The end of a period is its start, and no node of its own.
            steps = {name: float(pairs.axes[name][-1] - pairs.axes[name][-2]) for name in pairs.periodic if name in pairs.axes}
            bounds = {name: (float(nodes[0]), float(nodes[-1]) + steps.get(name, 0.0)) for name, nodes in pairs.axes.items()}
        if pairs.family is not None:
            whole = pairs.family.base.domain.bounds
            bounds |= {name: (float(whole[name][0]), float(whole[name][1])) for name in pairs.axes}
        inputs = {name: dict(pairs.input_axes.get(name, {})) for name in pairs.inputs}
        return cls(inputs, pairs.fields, dict(pairs.axes), pairs.points, pairs.periodic, bounds)

    def on(self, axes: Axes | None) -> Frame:
        """The same with outputs on another grid."""
        return self if axes is None else Frame(self.inputs, self.fields, axes, None, self.periodic, self.bounds)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the outputs' grid, or the number of scattered points."""
        return (len(self.points),) if self.points is not None else tuple(len(nodes) for nodes in self.axes.values())

    @property
    def places(self) -> Array:
        """The points of the outputs, ``(points, D)``, scaled to [-1, 1]."""
        places = mesh_points(self.axes) if self.points is None else self.points
        ends = np.array(list(self.bounds.values()))
        return np.asarray(2 * (places - ends[:, 0]) / np.maximum(np.ptp(ends, axis=1), 1e-300) - 1)

    @property
    def config(self) -> dict[str, Any]:
        """As plain values and tensors."""
        nodes = {name: {key: torch.from_numpy(each) for key, each in axes.items()} for name, axes in self.inputs.items()}
        return {
            "inputs": nodes,
            "fields": list(self.fields),
            "axes": {name: torch.from_numpy(each) for name, each in self.axes.items()},
            "points": None if self.points is None else torch.from_numpy(self.points),
            "periodic": list(self.periodic),
            "bounds": {name: list(each) for name, each in self.bounds.items()},
        }

    @classmethod
    def from_config(cls, given: Mapping[str, Any]) -> Frame:
        """The frame of a ``config``."""
        inputs = {name: {key: each.numpy() for key, each in axes.items()} for name, axes in given["inputs"].items()}
        axes = {name: each.numpy() for name, each in given["axes"].items()}
        points = None if given["points"] is None else given["points"].numpy()
        bounds = {name: (float(low), float(high)) for name, (low, high) in given["bounds"].items()}
        return cls(inputs, tuple(given["fields"]), axes, points, tuple(given["periodic"]), bounds)


def on_outputs(frame: Frame, name: str, values: Array) -> Array:
    """An input at the points of the outputs, ``(samples, *shape)``: interpolated, and repeated along what it lacks."""
    own = frame.inputs[name]
    count = len(values)
    if not own:
        return np.broadcast_to(values.reshape(count, *(1 for _ in frame.shape)), (count, *frame.shape))
    if POINT in own:
        return values
    if frame.points is not None:
        raise ModelError(f"the input {name!r} lies on a grid and the outputs on scattered points: take Kernel or DeepONet")
    lacking = [key for key in own if key not in frame.axes]
    if lacking:
        raise ModelError(f"the input {name!r} depends on {listed(lacking)}, which the outputs do not: take Kernel or DeepONet")
    same = all(len(own[key]) == len(frame.axes[key]) and np.allclose(own[key], frame.axes[key]) for key in own)
    if not same:
        wanted = {key: frame.axes[key] for key in own}
        shape = [len(each) for each in wanted.values()]
        ends = {key: nodes[-1] + (nodes[-1] - nodes[-2]) for key, nodes in own.items() if key in frame.periodic}
        found = interpolated(own, np.moveaxis(values, 0, -1), mesh_points(wanted), ends, cubic=len(own) == 1)
        values = found.T.reshape(count, *shape)
    shape = [len(frame.axes[key]) if key in own else 1 for key in frame.axes]
    order = [list(own).index(key) for key in frame.axes if key in own]
    found = np.transpose(values, (0, *(1 + each for each in order))).reshape(count, *shape)
    return np.broadcast_to(found, (count, *frame.shape))


def interpolated(axes: Axes, values: Array, places: Array, ends: Mapping[str, float], *, cubic: bool) -> Array:
    """Values ``(*shape, k)`` on a grid between its nodes, ``(points, k)``; what is periodic has its start's at its end, too."""
    nodes = []
    for column, (name, each) in enumerate(axes.items()):
        if name in ends:
            each = np.append(each, ends[name])
            values = np.concatenate([values, np.take(values, [0], axis=column)], axis=column)
        nodes.append(each)
    kind = "cubic" if cubic and min(map(len, nodes)) > 3 else "linear"
    inside = np.clip(places, [each[0] for each in nodes], [each[-1] for each in nodes])
    return np.asarray(scipy.interpolate.RegularGridInterpolator(nodes, values, method=kind)(inside))


def mlp(inputs: int, width: int, depth: int, outputs: int, activation: type[nn.Module]) -> nn.Sequential:
    """Layers of a width, ``depth`` of them with the activation, and a linear one."""
    sizes = [inputs, *(width for _ in range(depth))]
    layers: list[nn.Module] = []
    for one, two in itertools.pairwise(sizes):
        layers += [nn.Linear(one, two), activation()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


class LearnedOperator(Operator):
    """A network between functions: what ``DeepONet``, ``FNO``, ``UNet``, ``Transformer`` and ``Recurrent`` have in common.

    A subclass says what its inputs are made of (``features``) and maps them to scaled outputs (``forward``).
    """

    dtype: ClassVar[torch.dtype] = torch.float32
    # Whether outputs may be asked for on another grid than the one of training.
    any_grid: ClassVar[bool] = False
    batch: int
    frame: Frame
    output_center: Tensor
    output_scale: Tensor

    def __init__(self, *, lr: float, **sizes: int) -> None:
        super().__init__()
        self.lr = lr
        self.history: list[dict[str, Any]] = []
        for name, value in sizes.items():
            setattr(self, name, whole(name, value, 1, ModelError))

    def build(self, frame: Frame, generator: torch.Generator, pairs: Pairs | None = None) -> None:
        """Make the layers for a frame; weights are drawn from ``generator``, what is a statistic is taken from ``pairs``."""
        raise NotImplementedError

    def features(self, frame: Frame, inputs: Mapping[str, Array]) -> tuple[Tensor, ...]:
        """What ``forward`` takes, a row for each sample: numbers of about unit size, unless a family says otherwise."""
        return (torch.from_numpy(self.scaling.rows(parts_of(inputs))).to(self.dtype) * math.sqrt(len(self.scaling.sizes)),)

    def prepared(self, frame: Frame) -> None:
        """The parts that are made for a frame, without values: before training, and before a state is loaded."""
        self.frame = frame
        sizes = [math.prod(len(each) for each in axes.values()) for axes in frame.inputs.values()]
        self.scaling = Scaling(sizes)
        count = len(frame.fields)
        self.register_buffer("output_center", torch.zeros(count, dtype=torch.float64))
        self.register_buffer("output_scale", torch.ones(count, dtype=torch.float64))

    def drawn(self, seed: int, pairs: Pairs | None = None) -> None:
        """Make the layers for the frame, with weights drawn by a seed."""
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
            self.build(self.frame, generator, pairs)

    def scaled(self, pairs: Pairs) -> Array:
        """The outputs of pairs as the layers give them, ``(samples, points, fields)``."""
        return np.asarray((pairs.wanted() - self.output_center.cpu().numpy()) / self.output_scale.cpu().numpy())

    def learn(
        self,
        pairs: Pairs,
        held: Pairs,
        *,
        seed: int,
        seconds: float,
        log: Log,
        early: EarlyStopping | None,
        solver: Any,
        device: str | torch.device,
        journal: Journal,
    ) -> None:
        """Train on pairs; the state that is best on those held out is kept."""
        self.prepared(Frame.of(pairs))
        self.scaling.learn(parts_of(pairs.inputs))
        wanted = pairs.wanted()
        self.output_center.copy_(torch.from_numpy(wanted.mean(axis=(0, 1))))
        self.output_scale.copy_(torch.from_numpy(wanted.std(axis=(0, 1)).clip(min=1e-300)))
        self.drawn(seed, pairs)
        self.to(device)
        setup = MapSetup(self, pairs, held, device, journal)
        if solver is None:
            # How many steps fit into the budget is measured, and must not be when a training is resumed.
            steps = int(setup.journal.recalled("steps", lambda: {"steps": self._affordable(setup, seconds)})["steps"])
            solver = self._solver(setup, steps, seed)
        stages = list(np.atleast_1d(solver))
        Training(log, early).run(setup, stages, seed)  # type: ignore[arg-type]
        self.history = log.history
        self.notes = [f"{sum(each.numel() for each in self.parameters())} weights, {log.steps} steps of {stages[-1].name}"]
        self.eval().cpu()

    def _affordable(self, setup: MapSetup, seconds: float) -> int:
        """How many steps some seconds hold."""
        each, judged = 1.15 * setup.pace(self.batch), time.perf_counter()
        setup.objective().means(setup.held)
        look = time.perf_counter() - judged
        steps = MOST_STEPS if math.isinf(seconds) else int((seconds - LOOKS * look) / each)
        return min(max(steps, LEAST_STEPS), MOST_STEPS)

    def _solver(self, setup: MapSetup, steps: int, seed: int) -> FirstOrder:
        """AdamW with a rate that rises for a tenth of the steps and then falls by a cosine."""
        return FirstOrder(
            torch.optim.AdamW,
            steps,
            lr=self.lr,
            weight_decay=1e-5,
            scheduler=torch.optim.lr_scheduler.OneCycleLR,
            scheduler_options={"max_lr": self.lr, "total_steps": steps, "pct_start": 0.1},
            batch=min(self.batch, setup.count),
            seed=seed,
            look=max(steps // LOOKS, 1),
            clip=1.0,
        )

    def outputs(self, features: Sequence[Tensor], frame: Frame) -> Tensor:
        """Fields ``(samples, points, fields)`` in their units."""
        found = self(*features, frame).double()
        return found * self.output_scale + self.output_center

    @torch.no_grad()
    def predict(self, inputs: Mapping[str, Array], axes: Axes | None = None) -> tuple[Array, Array | None]:
        """Outputs ``(samples, points, fields)``, on the grid of training or on another one."""
        if axes is not None and not self.any_grid and not _same(axes, self.frame.axes):
            raise ModelError(
                f"{type(self).__name__} answers on the grid of its training alone, {self.frame.shape}: take FNO or DeepONet "
                "for another resolution"
            )
        frame = self.frame.on(axes)
        features = self.features(frame, inputs)
        found = [self.outputs([each[k : k + 64] for each in features], frame) for k in range(0, len(features[0]), 64)]
        return torch.cat(found).numpy(), None

    def channels(self, frame: Frame, inputs: Mapping[str, Array]) -> Tensor:
        """All inputs and the coordinates at the points of the outputs, ``(samples, channels, *shape)``."""
        scaled = []
        for number, (name, values) in enumerate(inputs.items()):
            center, scale = float(self.scaling.center[number]), float(self.scaling.scale[number])
            scaled.append((on_outputs(frame, name, np.asarray(values)) - center) / scale)
        stacked = torch.from_numpy(np.stack(scaled, axis=1)).to(self.dtype)
        where = torch.from_numpy(frame.places.T.reshape(-1, *frame.shape)).to(self.dtype)
        around = [list(frame.axes).index(name) for name in frame.periodic if name in frame.axes]
        # A coordinate that is periodic has no place of its own: the operator commutes with shifts.
        keep = [number for number in range(len(where)) if number not in around]
        where = where[keep].expand(len(stacked), *where[keep].shape)
        return torch.cat([stacked, where], dim=1)

    def channel_count(self, frame: Frame) -> int:
        """The number of channels."""
        around = sum(name in frame.axes for name in frame.periodic)
        return len(frame.inputs) + len(frame.bounds) - around


class GridOperator(LearnedOperator):
    """A network of convolutions on a grid of one to three coordinates: what ``FNO`` and ``UNet`` have in common."""

    def features(self, frame: Frame, inputs: Mapping[str, Array]) -> tuple[Tensor, ...]:
        return (self.channels(frame, inputs),)

    def convolution(self, frame: Frame) -> Any:
        """The kind of convolution that serves a frame; a ModelError where its outputs lie on no such grid."""
        if frame.points is not None or not 1 <= len(frame.axes) <= 3:
            name = type(self).__name__
            raise ModelError(f"{name} needs outputs on a grid of one to three coordinates: take Transformer or DeepONet")
        return {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(frame.axes)]


def _same(one: Axes, two: Axes) -> bool:
    return all(len(one[name]) == len(two[name]) and np.allclose(one[name], two[name]) for name in two)


class MapRows(ResidualSystem):
    """The relative L2 errors of an operator's pairs as residuals; the points of a block are numbers of samples."""

    def __init__(self, trial: LearnedOperator, parts: Sequence[Pairs], device: str | torch.device) -> None:
        self.trial, self.raw, self.portion = trial, {}, BatchSize()
        features = zip(*(trial.features(trial.frame, part.inputs) for part in parts), strict=True)
        self.features = [torch.cat(each).to(device) for each in features]
        self.wanted = torch.cat([torch.from_numpy(part.wanted()) for part in parts]).to(device, trial.dtype)
        size = self.wanted.square().sum(dim=1, keepdim=True).sqrt()
        self.size = size.clamp(min=1e-6 * float(size.max()))

    def evaluation(self, block: Collocation, values: Any = None) -> Any:
        return block.sample.points[0][:, 0].round().long(), ()

    def relative(self, numbers: Tensor) -> Tensor:
        """The root of the mean square error of a sample's fields, relative to their sizes, ``(n,)``."""
        model, wanted = self.trial, self.wanted[numbers]
        found = model(*(each[numbers] for each in self.features), model.frame)
        found = found * model.output_scale.to(wanted) + model.output_center.to(wanted)
        return ((found - wanted) / self.size[numbers]).square().sum(dim=1).mean(dim=1).clamp(min=1e-30).sqrt()


class OperatorSetup:
    """What the training loop needs of a fit, for samples in place of points."""

    rows: ResidualSystem
    train: tuple[Collocation, ...]
    held: tuple[Collocation, ...]
    scales: dict[str, float]
    weights: dict[str, float]
    leading: dict[str, float]
    journal: Journal

    def objective(self, blocks: Any = None, weights: Mapping[str, float] | None = None) -> Objective:
        """The mean squares of all rows."""
        parameters = [each for each in self.rows.trial.parameters() if each.requires_grad]
        given = self.train if blocks is None else blocks
        return Objective(self.rows, given, self.scales, dict(weights or self.weights), list(parameters))

    def pace(self, batch: int) -> float:
        """The seconds that a step on a batch takes, measured here and now."""
        objective = self.objective()
        part = [block.part(torch.arange(min(batch, block.size))) for block in objective.blocks]
        objective.evaluate(part)
        begin = time.perf_counter()
        for _ in range(_TIMED):
            objective.evaluate(part)
        return (time.perf_counter() - begin) / _TIMED


class MapSetup(OperatorSetup):
    """Pairs to train on, numbered first, and those held out."""

    rows: MapRows

    def __init__(self, trial: LearnedOperator, pairs: Pairs, held: Pairs, device: Any, journal: Journal) -> None:
        self.trial, self.count, self.journal = trial, len(pairs), journal
        self.rows = MapRows(trial, (pairs, held), device)
        self.weights = self.leading = self.scales = {_PAIRS: 1.0}
        self.train = (self._numbers(0, self.count),)
        self.held = (self._numbers(self.count, self.count + len(held)),)

    def _numbers(self, first: int, last: int) -> Collocation:
        places = torch.arange(first, last, dtype=torch.float64, device=self.rows.wanted.device)[:, None]
        return Collocation(PointSet((places,)), (Term(_PAIRS, Interior(), cast(Any, self.rows.relative)),))
