"""Tensors of a coarser floating-point type that take part in a computation without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_SOME = 256


class PrecisionMonitor(TorchFunctionMode):
    """While it is active, tensors that are coarser than float64 and meet one of float64 are remembered in ``met``.

    Torch computes ``torch.tensor(0.1) * x`` in float64 if x is, with a 0.1 of which eight digits are right. Numbers that are
    the same in both types, such as 2.0 and 0.5, are let pass.

    Example:
        >>> import torch
        >>> x = torch.ones(3, dtype=torch.float64)
        >>> with PrecisionMonitor() as coarse:
        ...     y = x * torch.tensor(0.5) + torch.tensor(0.1)
        >>> coarse.met
        [tensor(0.1000)]
    """

    def __init__(self) -> None:
        super().__init__()
        self.met: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The function as it is, after a look at what it is given."""
        kwargs = dict(kwargs or {})
        if not self.met:
            given = [each for each in _tensors((*args, *kwargs.values())) if each.is_floating_point()]
            if any(each.dtype == torch.float64 for each in given):
                self.met += [each.detach() for each in given if each.dtype != torch.float64 and not exact_in(each)][:1]
        return func(*args, **kwargs)


def exact_in(value: Tensor) -> bool:
    """Whether numbers of a coarser type are what was meant by them, as 0.5 and 1e9 are and 0.1 is not.

    Args:
        value: of any shape and floating-point type.

    Example:
        >>> import torch
        >>> exact_in(torch.tensor([2.0, 0.375])), exact_in(torch.tensor(0.1))
        (True, False)
    """
    some = value.detach().float().cpu().flatten()[:_SOME].numpy()
    # The shortest text that stands for a number is what was meant by it.
    meant = np.array([float(str(each)) for each in some])
    return bool((~np.isfinite(meant) | (meant == some.astype(np.float64))).all())


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
