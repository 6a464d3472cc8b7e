r"""Functions of torch whose higher derivatives are missing or wrong, in elementary operations that have all of them.

The fused layer and instance normalisations of torch have correct first and second derivatives. The third one, which training on
a second-order equation needs, is wrong by ten per cent and more: measured with torch 2.13 against differences, and against the
same formula in elementary operations. The fused attention of processors has no second derivative.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def differentiable() -> Iterator[None]:
    """What is computed inside has derivatives of every order."""
    with sdpa_kernel(SDPBackend.MATH), _Elementary():
        yield


class _Elementary(TorchFunctionMode):
    """Puts elementary operations in the place of fused normalisations."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _ELEMENTARY.get(func, func)(*args, **(kwargs or {}))


def _normalised(values: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    centred = values - values.mean(dims, keepdim=True)
    return centred * (centred.square().mean(dims, keepdim=True) + eps) ** -0.5


def _layer_norm(
    values: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    found = _normalised(values, tuple(range(-len(normalized_shape), 0)), eps)
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def _instance_norm(
    values: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats or running_mean is not None:
        return functional.instance_norm(values, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
    found = _normalised(values, tuple(range(2, values.ndim)), eps)
    columns = (-1, *[1] * (values.ndim - 2))
    found = found if weight is None else found * weight.view(columns)
    return found if bias is None else found + bias.view(columns)


_ELEMENTARY: dict[Any, Callable[..., Any]] = {
    functional.layer_norm: _layer_norm,
    torch.layer_norm: _layer_norm,
    functional.instance_norm: _instance_norm,
}
