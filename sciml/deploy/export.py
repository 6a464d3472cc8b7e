"""Export to ONNX and ``torch.export``: the fields of a solution and their derivatives as one graph of operations."""

from __future__ import annotations

import copy
import io
import json
import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from sciml._text import among, extra, first_line, listed
from sciml.data import archive
from sciml.deploy.fmu import functional_mockup
from sciml.errors import FileError, ModelError, ProblemError
from sciml.geometry import Interior, draw
from sciml.jets import AutogradJets
from sciml.jets.autograd import AnalyticJets, knows_derivatives
from sciml.jets.calculus import describe
from sciml.jets.differentiable import differentiable
from sciml.models.one_graph import as_one_graph
from sciml.problem.observations import derivative_named
from sciml.runs.fingerprint import versions
from sciml.typing import MultiIndex

if TYPE_CHECKING:
    from sciml.solution import Solution

# The number of points with which operations are recorded: a prime, so that it is known again wherever a size depends on it.
_RECORDED = 1009
_CHECKED = (1000, 3, 2)
_COUNT = torch.export.Dim("n", min=2)
# How far a program may differ from the solution, as a share of the largest value of a column.
_SLACK = {torch.float64: 1e-10, torch.float32: 1e-3}
# By how much more than rounding of the points moves them values of another library's functions may differ.
_AMPLIFIED = 10.0

Wanted = Sequence[tuple[str, MultiIndex]]


def export(
    solution: Solution,
    path: str | Path,
    fields: str | Sequence[str] | None = None,
    *,
    dtype: torch.dtype | str | None = None,
    overwrite: bool = False,
) -> Path:
    r"""Write fields of a solution and derivatives of them as a program that runs without this library.

    The end of the path says which: ``.onnx``, for onnxruntime and whatever else reads ONNX; ``.pt2``, for
    ``torch.export.load``; or ``.fmu``, a functional mock-up unit (FMI 2.0, co-simulation) of a solution over time for system
    simulators, whose inputs are the coordinates beside time. Every kind of solution has a program: networks, polynomials,
    tiles, windows and the grids of ``baseline``; what is made of pieces looks up the piece of each point inside the graph.
    Promoted constants are coordinates. The program takes any number of points, and is compared with the solution at a thousand
    of them before it is there.

    An ONNX graph has an input for each coordinate and an output for each field, ``(n,)``, under their names. The program of
    torch maps points ``(n, D)``, coordinates in the problem's order, to values ``(n, F)``. All are in the problem's units.
    ``sciml.json`` (a file inside ``.pt2``, an entry of the metadata in ONNX) says which coordinates, bounds, fields, unknown
    constants, estimated errors and versions belong to it, and how far the program and the solution differ.

    Args:
        solution: what ``fit`` or ``baseline`` returned.
        path: where to write, ending in ``.onnx``, ``.pt2`` or ``.fmu``.
        fields: fields and derivatives by name, such as ``["u", "u_x"]``; by default all fields.
        dtype: ``float64`` or ``float32``; by default that of the solution.
        overwrite: whether a file that is there may be replaced.

    Returns:
        The path.

    Raises:
        ProblemError: a name is neither a field nor a derivative of one, or a unit is to be made where there is no time.
        ModelError: the trial function does what a graph cannot hold, the program gives other values than the solution, or
            the libraries of the extra ``export`` are missing.
        FileError: the path exists, has another ending, or cannot be written.

    Example:
        >>> import tempfile, pathlib, torch, sciml
        >>> solution = sciml.fit(sciml.gallery.problem("harmonic_oscillator"), sciml.MLP(8), solver=sciml.LBFGS(20))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = solution.export(pathlib.Path(folder) / "oscillator.pt2", fields=["u", "u_t"])
        ...     program = torch.export.load(path).module()
        >>> t = torch.tensor([[0.25], [0.5], [1.0]], dtype=torch.float64)
        >>> known = solution(t=t[:, 0], derivatives=["u_t"])
        >>> bool(torch.allclose(program(t)[:, 1], known["u_t"], atol=1e-12))
        True

    Reference: J. Reed and others, torch.fx: Practical program capture and transformation for deep learning in Python,
    MLSys 2022; the ONNX standard, https://onnx.ai.
    """
    path, wanted = Path(path), _wanted(solution, fields)
    kind = path.suffix.lower()
    if kind not in (".onnx", ".pt2", ".fmu"):
        raise FileError(f"a program ends in .onnx, .pt2 (torch.export) or .fmu; given: {path}")
    archive.check_free(path, overwrite)
    dtype = solution.dtype if dtype is None else getattr(torch, dtype) if isinstance(dtype, str) else dtype
    if dtype not in _SLACK:
        raise ModelError(f"a program is in float64 or float32; given: {dtype}")
    values = _values(solution, wanted, dtype)
    points = [points_of(solution, count).to(dtype) for count in (_RECORDED, *_CHECKED)]
    names = [describe(*each) for each in wanted]
    about: dict[str, Any] = {
        "problem": solution.name,
        "coordinates": list(solution.coordinates),
        "bounds": {name: list(pair) for name, pair in solution.bounds.items()},
        "fields": names,
        "unknowns": {str(name): row for name, row in solution.unknowns.T.to_dict().items()},
        "estimated_error": dict(solution.estimated_error),
        "success": solution.success,
        "versions": versions(),
    }
    with torch.no_grad(), _quietly():
        graph = _recorded(values, points[0])
        expected = [values(each) for each in points[1:]]
        slack = _SLACK[dtype]
        if dtype == torch.float64:
            # What rounding moves by more than that no program holds.
            slack = max(slack, min(_AMPLIFIED * _rounding(values, points[1], expected[0]), _SLACK[torch.float32]))
        about["difference"] = _compared(graph, points[1:], expected, slack)
        if kind == ".pt2":
            buffer, program = io.BytesIO(), _exported(graph, (points[0],), ({0: _COUNT},))
            torch.export.save(program, buffer, extra_files={"sciml.json": json.dumps(about)})
            content = buffer.getvalue()
        else:
            content = _onnx(graph, points[1], about)
            _compared(session_of(content), points[1:], expected, slack)
    if kind == ".fmu":
        time = "t" if solution.problem is None else solution.problem.time
        content = functional_mockup(solution.name, time, solution.coordinates, content)
    archive.write_atomic(path, content)
    return path


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what torch says of itself while it exports: its own deprecations, and libraries that it would also serve."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.disabled
    logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before


def _values(solution: Solution, wanted: Wanted, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The function ``(n, D)`` to ``(n, F)`` that is recorded."""
    trial = copy.deepcopy(solution.trial).cpu().to(dtype).eval().requires_grad_(False)
    columns = [solution.fields.index(field) for field, _ in wanted]
    slopes = any(index for _, index in wanted)
    supplier: Any = AnalyticJets if knows_derivatives(trial) else AutogradJets

    def values(points: Tensor) -> Tensor:
        with as_one_graph():
            if not slopes:
                return trial(points)[:, columns]
            with torch.enable_grad(), differentiable():
                jets = supplier(trial, points, solution.coordinates, solution.fields)
                found = [jets.jet(field, index) for field, index in wanted]
            return torch.stack(found, dim=1).detach()

    return values


def _recorded(values: Callable[[Tensor], Tensor], points: Tensor) -> fx.GraphModule:
    """The operations of a function of points, with their number left open."""
    try:
        graph = make_fx(values)(points)
    except Exception as error:
        # Whatever a module does that cannot be followed, torch refuses with an exception of its own kind.
        why = first_line(error)
        raise ModelError(
            f"the trial function cannot be cut out as a graph of torch operations ({type(error).__name__}: {why}): keep its "
            "forward free of choices that depend on values of the points; or sciml.distil(solution) makes one network of it"
        ) from error
    return _opened(graph)


def _opened(module: fx.GraphModule) -> fx.GraphModule:
    """A recorded graph with every size that is a multiple of the recorded number of points bound to the number given."""
    graph = module.graph
    points = next(node for node in graph.nodes if node.op == "placeholder")
    with graph.inserting_after(points):
        size = graph.call_function(torch.ops.aten.sym_size.int, (points, 0))
    sizes = {1: size}

    def bound(value: Any) -> Any:
        if type(value) is not int or value < _RECORDED or value % _RECORDED:
            return value
        times = value // _RECORDED
        if times not in sizes:
            with graph.inserting_after(size):
                sizes[times] = graph.call_function(operator.mul, (size, times))
        return sizes[times]

    for node in list(graph.nodes):
        # Where on this machine each operation was written is nobody else's business.
        node.meta.pop("stack_trace", None)
        if node not in sizes.values():
            node.args = fx.node.map_aggregate(node.args, bound)
            node.kwargs = fx.node.map_aggregate(node.kwargs, bound)
    graph.lint()
    module.recompile()
    return _folded(module)


def _folded(module: fx.GraphModule) -> fx.GraphModule:
    """The same with everything computed that does not depend on the points."""
    graph = module.graph
    known: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            known[node] = operator.attrgetter(node.target)(module)
        elif node.op == "call_function" and all(each in known for each in node.all_input_nodes):
            positional, named = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*positional, **named)
    for number, (node, value) in enumerate(known.items()):
        if node.op != "get_attr" and isinstance(value, Tensor) and any(each not in known for each in node.users):
            module.register_buffer(f"_known_{number}", value)
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(f"_known_{number}"), lambda user: user not in known)
    graph.eliminate_dead_code()
    module.recompile()
    return module


def _exported(graph: nn.Module, inputs: tuple[Tensor, ...], sizes: Any) -> torch.export.ExportedProgram:
    program = torch.export.export(graph, inputs, dynamic_shapes=sizes, strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    return program


class _Named(nn.Module):
    """A graph of points as one of separate coordinates and fields."""

    def __init__(self, graph: nn.Module) -> None:
        super().__init__()
        self.points_to_values = graph

    def forward(self, *columns: Tensor) -> tuple[Tensor, ...]:
        return self.points_to_values(torch.stack(columns, dim=1)).unbind(1)


def _onnx(module: nn.Module, points: Tensor, about: dict[str, Any]) -> bytes:
    with extra("export", "ONNX files are written by onnxscript"):
        import onnx
        import onnxscript  # noqa: F401 - what torch.onnx writes with
    columns = tuple(points.unbind(1))
    try:
        exported = _exported(_Named(module), columns, (tuple({0: _COUNT} for _ in columns),))
        # onnxruntime simplifies graphs itself; onnxscript takes as long as all the rest, and loses inputs of clamps.
        program = torch.onnx.export(exported, columns, dynamo=True, verbose=False, optimize=False)
    except Exception as error:
        # The innermost one says which operation it is.
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ModelError(
            f"ONNX cannot hold this trial function ({first_line(cause)}): a .pt2 file can; or "
            "sciml.distil(solution) makes one network of it"
        ) from error
    assert program is not None
    model = program.model_proto
    graph = model.graph
    names = {each.name: name for each, name in zip(graph.input, about["coordinates"], strict=True)}
    names |= {each.name: name for each, name in zip(graph.output, about["fields"], strict=True)}

    def named(inner: str) -> str:
        # What is inside must not be called like a coordinate or field, as a weight `t` would be.
        return names.get(inner, f"inner.{inner}" if inner else "")

    for each in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        each.name = named(each.name)
    for node in graph.node:
        # Where on this machine each operation was written is nobody else's business.
        del node.metadata_props[:]
        node.doc_string = ""
        node.input[:], node.output[:] = map(named, node.input), map(named, node.output)
    onnx.helper.set_model_props(model, {"sciml.json": json.dumps(about)})
    return model.SerializeToString()


def session_of(content: bytes) -> Callable[[Tensor], Tensor]:
    """What onnxruntime makes of a graph, as a function of points."""
    with extra("export", "ONNX files are compared by onnxruntime"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        why = first_line(error)
        raise ModelError(
            f"onnxruntime cannot run this graph ({why}): a function of it may exist in float32 alone, dtype='float32'"
        ) from error
    names = [each.name for each in session.get_inputs()]

    def values(points: Tensor) -> Tensor:
        found = session.run(None, {name: column.numpy() for name, column in zip(names, points.unbind(1), strict=True)})
        return torch.from_numpy(np.stack(found, axis=1))

    return values


def _rounding(values: Callable[[Tensor], Tensor], points: Tensor, expected: Tensor) -> float:
    """What rounding of the points makes of the values: weights that cancel each other lose more than the last digit."""
    return float(((values(points * (1 + torch.finfo(points.dtype).eps)) - expected).abs() / _scale(expected)).max())


def _scale(expected: Tensor) -> Tensor:
    """Each column's largest value."""
    return expected.abs().amax(0).clamp_min(torch.finfo(expected.dtype).tiny)


def _compared(program: Any, points: Sequence[Tensor], expected: Sequence[Tensor], slack: float) -> float:
    """The largest difference between a program and the solution, as a share of each column's largest value."""
    scale, dtype = _scale(expected[0]), expected[0].dtype
    worst = 0.0
    for each, truth in zip(points, expected, strict=True):
        try:
            gap = (program(each) - truth).abs() / scale
        except (RuntimeError, ValueError) as error:
            why = first_line(error)
            raise ModelError(
                f"the trial function cannot be cut out as a graph of torch operations: it holds for {_RECORDED} points alone "
                f"({why}); keep its forward free of len(points) and int(...) of sizes, which are constants of a graph: take "
                "points.shape[0]"
            ) from error
        worst = max(worst, float(gap.max()))
    if not worst <= slack:
        raise ModelError(
            f"the exported program differs from the solution by {worst:.1e} of the largest value and was thrown away: "
            + ("float32 does not hold it, take dtype='float64'; or " if dtype == torch.float32 else "")
            + "sciml.distil(solution) makes one network of it"
        )
    return worst


def points_of(solution: Solution, count: int) -> Tensor:
    """Points of the domain, the same ones every time."""
    return draw(Interior(), solution.domain, count, np.random.default_rng(0)).points[0][:count]


def _wanted(solution: Solution, fields: str | Sequence[str] | None) -> list[tuple[str, MultiIndex]]:
    """The fields and derivatives asked for."""
    if fields is None:
        return [(name, ()) for name in solution.fields]
    names = [fields] if isinstance(fields, str) else list(fields)
    if not names:
        raise ProblemError(f"export needs at least one field of {listed(solution.fields)}")
    found: list[tuple[str, MultiIndex]] = []
    for name in names:
        meant = (name, ()) if name in solution.fields else derivative_named(str(name), solution.fields, solution.coordinates)
        if meant is None:
            raise ProblemError(f"there is no field {name!r} to export; there are {among(name, solution.fields)}")
        found.append(meant)
    return found
