"""Compression of networks: structured pruning by interpolative decomposition, and quantisation to float16 and int8."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import tempfile
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy
import torch
from torch import nn

from sciml._text import extra, listed
from sciml.data import archive
from sciml.deploy.export import export, points_of, session_of
from sciml.errors import ModelError
from sciml.models import MLP, model_of, with_model

if TYPE_CHECKING:
    from sciml.solution import Solution

_PRECISIONS = ("float64", "float32", "float16", "int8")
_POINTS, _TIMED, _REPEATS = 2000, 1000, 20


def prune(solution: Solution, keep: float) -> Solution:
    r"""Structured pruning: a solution whose ``MLP`` has a share of its hidden units, chosen layer by layer.

    With the outputs H ``(n, w)`` of a hidden layer at points of the domain, columns S are chosen by a QR decomposition with
    pivoting, and the others are replaced by combinations of them, :math:`H \approx H_S T`; T is multiplied into the weights of
    the next layer. That is the least-squares fit of the next layer's input, and needs no training.

    Args:
        solution: one with an ``MLP``.
        keep: the share of each hidden layer's units that is kept, above 0 and at most 1.

    Returns:
        The solution with the smaller network; how far it is from the first is the table of ``compress``.

    Raises:
        ModelError: the model is no ``MLP``, or ``keep`` no such share.

    Reference: J. Chee, M. Renz, A. Damle and C. De Sa, Model preserving compression for neural networks, NeurIPS 2022.
    """
    model = model_of(solution.trial)
    if not isinstance(model, MLP):
        raise ModelError(
            f"hidden units are pruned of an MLP; given: {type(model or solution.trial).__name__}. sciml.distil(solution, "
            "sciml.MLP(12, 12)) makes a network of any solution"
        )
    if not 0 < keep <= 1:
        raise ModelError(f"keep is the share of the units that stays, above 0 and at most 1; given: {keep!r}")
    smaller: Any = copy.deepcopy(model)
    points = points_of(solution, _POINTS).to(solution.dtype)
    scaled: Any = solution.trial
    while not hasattr(scaled, "half_width"):
        scaled = scaled.model
    values = (points - scaled.center.cpu()) / scaled.half_width.cpu()
    layers = list(smaller.layers.cpu())
    linear = [number for number, layer in enumerate(layers) if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for here, after in itertools.pairwise(linear):
            layer, following = layers[here], layers[after]
            outputs = values
            for each in layers[here:after]:
                outputs = each(outputs)
            count = max(1, round(keep * outputs.shape[1]))
            # A constant beside the units: what is left out may have a mean, which the next bias takes.
            whole = torch.cat([torch.ones(len(outputs), 1, dtype=outputs.dtype), outputs], dim=1).double().numpy()
            centred = whole[:, 1:] - whole[:, 1:].mean(0)
            order = scipy.linalg.qr(centred, mode="r", pivoting=True)[1][:count]
            kept = np.sort(order)
            combined = np.linalg.lstsq(whole[:, [0, *(kept + 1)]], whole[:, 1:], rcond=None)[0]
            weight = following.weight.double()
            mixed = torch.from_numpy(combined)
            following.bias += (weight @ mixed[0]).to(following.bias)
            following.weight = nn.Parameter((weight @ mixed[1:].T).to(following.weight))
            following.in_features = count
            layer.weight = nn.Parameter(layer.weight[kept].clone())
            layer.bias = nn.Parameter(layer.bias[kept].clone())
            layer.out_features = count
            values = outputs[:, kept]
    smaller.hidden = tuple(layers[number].out_features for number in linear[:-1])
    trial = with_model(copy.deepcopy(solution.trial).cpu(), smaller).requires_grad_(False)
    return dataclasses.replace(solution, trial=trial, choices=(*solution.choices, f"pruned to {listed(smaller.hidden)} units"))


def compress(
    solution: Solution,
    path: str | Path,
    *,
    precision: str = "int8",
    keep: float = 1.0,
    tolerance: float = 1e-2,
    overwrite: bool = False,
) -> pd.DataFrame:
    """Write a smaller, faster copy of a network as ONNX: pruned, and with weights in fewer bits.

    Args:
        solution: one with a network; ``sciml.distil`` makes one of any solution.
        path: where to write, ending in ``.onnx``.
        precision: of the weights: ``"int8"`` (dynamic quantisation), ``"float16"``, ``"float32"`` or ``"float64"``. Inputs and
            outputs are float32, or float64.
        keep: the share of each hidden layer's units that is kept; see ``prune``.
        tolerance: the relative L2 distance from the solution, of the worst field, up to which the copy is written.
        overwrite: whether a file that is there may be replaced.

    Returns:
        A row for the solution as it is (in float64 by onnxruntime) and one for the copy: ``error``, the distance from the
        solution; ``bytes`` of the file; ``microseconds`` for a thousand points, the median of twenty.

    Raises:
        ModelError: the copy is farther away than ``tolerance``; nothing is written then.
        FileError: the path exists, or cannot be written.

    Reference: B. Jacob and others, Quantization and training of neural networks for efficient integer-arithmetic-only
    inference, CVPR 2018.
    """
    path = Path(path)
    if precision not in _PRECISIONS:
        raise ModelError(f"precision is one of {listed(_PRECISIONS)}; given: {precision!r}")
    archive.check_free(path, overwrite)
    pruned = solution if keep == 1 else prune(solution, keep)
    with tempfile.TemporaryDirectory() as folder:
        first = export(solution, Path(folder) / "first.onnx", dtype="float64").read_bytes()
        kind = "float64" if precision == "float64" else "float32"
        content = export(pruned, Path(folder) / "copy.onnx", dtype=kind).read_bytes()
    if precision in ("float16", "int8"):
        content = _quantised(content, precision)
    table = pd.DataFrame(
        [_measured(solution, first, torch.float64), _measured(solution, content, getattr(torch, kind))],
        index=["the solution", f"{precision}, {keep:.0%} of the units"],
    )
    far = float(table["error"].iloc[-1])
    if not far <= tolerance:
        raise ModelError(
            f"this copy is {far:.1e} away from the solution, more than {tolerance:g}, and was not written: take a higher "
            "precision, keep more units, or allow more by tolerance="
        )
    archive.write_atomic(path, content)
    return table


def _quantised(content: bytes, precision: str) -> bytes:
    with extra("export", "quantisation needs onnx and onnxruntime"):
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.transformers.float16 import convert_float_to_float16
    model = onnx.load_from_string(content)
    if precision == "float16":
        return convert_float_to_float16(model, keep_io_types=True).SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "int8.onnx"
        quantize_dynamic(model, made, weight_type=QuantType.QInt8)
        return made.read_bytes()


def _measured(solution: Solution, content: bytes, dtype: torch.dtype) -> dict[str, float]:
    values: Callable[[torch.Tensor], torch.Tensor] = session_of(content)
    points = points_of(solution, _POINTS)
    at = dict(zip(solution.coordinates, points.numpy().T, strict=True))
    truth = solution(at)
    found = values(points.to(dtype)).double().numpy()
    errors = [
        float(np.linalg.norm(found[:, column] - truth[name]) / (np.linalg.norm(truth[name]) or 1.0))
        for column, name in enumerate(solution.fields)
    ]
    seconds = timeit.repeat(partial(values, points[:_TIMED].to(dtype)), number=1, repeat=_REPEATS)
    return {"error": max(errors), "bytes": len(content), "microseconds": 1e6 * float(np.median(seconds))}
