"""Products of vectors with the Jacobian of all rows, without the matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from sciml.jacobian import CHUNK, pieces
from sciml.rows import Block, Rows


class JacobianProducts:
    r"""The linear maps :math:`v \mapsto Jv` and :math:`w \mapsto J^Tw`, for Jacobians that are too large to be kept.

    The second is a reverse sweep; the first is the derivative by w of the second, which is linear in w, and so another.

    Args:
        rows: the residuals.
        blocks: where they are taken.
        factors: what each term is multiplied by.
        parameters: the parameters to differentiate by; raw unknowns follow after them. All of them require gradients.
        chunk: about how many bytes may be needed at once: points are taken in parts.

    Reference: B. Christianson, Automatic Hessians by reverse accumulation, IMA Journal of Numerical Analysis 12 (1992).
    """

    def __init__(
        self,
        rows: Rows,
        blocks: Sequence[Block],
        factors: Mapping[str, float],
        parameters: Sequence[Tensor],
        chunk: int = CHUNK,
    ) -> None:
        self._rows, self._blocks, self._factors, self._chunk = rows, tuple(blocks), dict(factors), chunk
        self._parameters = [*parameters, *rows.raw.values()]
        self.shape = (
            sum(block.height * len(block.terms) for block in blocks),
            sum(parameter.numel() for parameter in self._parameters),
        )

    def along(self, vector: Tensor) -> Tensor:
        """Jv, shape ``(m,)``, of a vector ``(p + q,)``."""
        found = vector.new_zeros(self.shape[0])
        for place, residual in self._residuals():
            weights = torch.zeros_like(residual, requires_grad=True)
            product = self._transposed(residual, weights, create_graph=True) @ vector
            (part,) = torch.autograd.grad(product, weights, allow_unused=True, materialize_grads=True)
            found[place] += part
        return found

    def transposed(self, weights: Tensor) -> Tensor:
        """The product of the transpose of J with a vector ``(m,)``, shape ``(p + q,)``."""
        found = weights.new_zeros(self.shape[1])
        for place, residual in self._residuals():
            found += self._transposed(residual, weights[place], create_graph=False)
        return found

    def _transposed(self, residual: Tensor, weights: Tensor, *, create_graph: bool) -> Tensor:
        if not residual.requires_grad:
            return 0.0 * weights.sum() * residual.new_ones(self.shape[1])
        parts = torch.autograd.grad(
            residual,
            self._parameters,
            weights,
            create_graph=create_graph,
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        return torch.cat([part.reshape(-1) for part in parts])

    def _residuals(self) -> Iterator[tuple[slice, Tensor]]:
        """Every scaled residual in parts, with its place among the rows, in the order of ``jacobian``."""
        start = 0
        row_bytes = self.shape[1] * self._parameters[0].element_size()
        for block in self._blocks:
            for chosen, piece in pieces(block, row_bytes, self._chunk, self._rows.portion.size):
                for number, (name, values) in enumerate(self._rows.residuals([piece]).items()):
                    first = start + number * block.height
                    # What is averaged is one row, to which every part of the points adds.
                    own = slice(0, 1) if block.sample.shares is not None else chosen
                    place = slice(first + own.start, first + own.stop)
                    yield place, values * self._factors[name]
            start += block.height * len(block.terms)
