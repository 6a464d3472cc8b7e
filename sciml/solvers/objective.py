"""The objective function of solvers: weighted mean squares of all residuals, as a function of one vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sciml.parallel import process_group
from sciml.problem.collocation import Collocation, shares
from sciml.problem.observations import DATA
from sciml.solvers.batching import kept_bytes
from sciml.solvers.jacobian import jacobian
from sciml.solvers.residuals import ResidualSystem

# Blocks of fewer points take no memory to speak of; points by which it is foretold what others take.
_MANY, _FEW = 16_384, 64


@dataclass(eq=False, repr=False)
class Objective:
    r"""The loss :math:`\sum_i w_i \operatorname{mean}_n\big(c_n (r_i(x_n)/s_i)^2\big)` and its gradient.

    Terms have weights :math:`w_i` and points weights :math:`c_n` (``Collocation.weights``, ones unless a strategy sets them).

    Args:
        rows: the residuals.
        blocks: the points at which they are taken.
        scales: the natural size :math:`s_i` of each residual, in its unit.
        weights: the weight :math:`w_i` of each term.
        parameters: the tensors to be varied.
        feed: measured blocks for one step after another, where the measurements are not held in memory.
    """

    rows: ResidualSystem
    blocks: tuple[Collocation, ...]
    scales: dict[str, float]
    weights: dict[str, float]
    parameters: list[Tensor]
    feed: Iterator[Sequence[Collocation]] | None = None

    def __post_init__(self) -> None:
        self.blocks, self.weights = tuple(self.blocks), dict(self.weights)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of parameters."""
        rows = sum(block.height * len(block.terms) for block in self.blocks)
        return rows, sum(parameter.numel() for parameter in self.parameters)

    def next_blocks(self) -> tuple[Collocation, ...]:
        """The blocks of the next step: all of them, but the next batch of measurements where these come in batches."""
        if self.feed is None:
            return self.blocks
        stay = [block for block in self.blocks if not any(term.name.startswith(DATA) for term in block.terms)]
        return (*stay, *next(self.feed))

    def terms(self, blocks: Sequence[Collocation] | None = None) -> dict[str, Tensor]:
        """The mean square of each scaled residual, with the weights of points and without that of the term."""
        return self._mean_squares(self.rows.residuals, blocks)

    def means(self, blocks: Sequence[Collocation] | None = None) -> dict[str, Tensor]:
        """The same numbers without a graph, of parts of the points where memory does not hold all of them at once."""
        return self._mean_squares(self.rows.numbers, blocks)

    def _mean_squares(
        self, residuals: Callable[[list[Collocation]], dict[str, Tensor]], blocks: Sequence[Collocation] | None
    ) -> dict[str, Tensor]:
        found = {}
        for block in self.blocks if blocks is None else blocks:
            for name, values in residuals([block]).items():
                squares = (values / self.scales[name]).square()
                mean = (squares if block.weights is None else block.weights * squares).mean()
                found[name] = mean if block.whole is None else block.share * mean
        return found

    def worst(self, blocks: Sequence[Collocation] | None = None) -> float:
        """The largest root mean square of a scaled residual; infinite if any is not a number."""
        squares = torch.stack(list(self.means(blocks).values()))
        largest = float(squares.max().sqrt())  # unlike Python's max, this one sees every value that is not a number
        return largest if math.isfinite(largest) else math.inf

    def total(self, terms: Mapping[str, Tensor]) -> Tensor:
        """The weighted sum of terms."""
        return torch.stack([self.weights[name] * value for name, value in terms.items()]).sum()

    def evaluate(self, blocks: Sequence[Collocation] | None = None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Loss, its gradient as one vector, and the terms, all detached; of some blocks or of all."""
        blocks = self.blocks if blocks is None else blocks
        own = shares(blocks)
        found = self.rows.portion.attempt(lambda most: self._evaluated(own, most), _largest(own))
        return self._added(found[1], found[2], blocks) if process_group.several() else found

    def _added(
        self, gradient: Tensor, terms: Mapping[str, Tensor], blocks: Sequence[Collocation]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Loss, gradient and terms of all processes from what each has found."""
        # Which columns a batch of measurements has may differ from process to process.
        names = list(self.weights) if self.feed is not None else [term.name for block in blocks for term in block.terms]
        zero = gradient.new_zeros(())
        packed = process_group.total(torch.cat([gradient, torch.stack([terms.get(name, zero) for name in names])]))
        found = dict(zip(names, packed[len(gradient) :], strict=True))
        return self.total(found), packed[: len(gradient)], found

    def _evaluated(self, blocks: Sequence[Collocation], most: int | None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        if most is not None or not blocks:
            return self._summed(blocks, most)
        terms = self.terms(blocks)
        loss = self.total(terms)
        return loss.detach(), self._gradient(loss), {name: value.detach() for name, value in terms.items()}

    def _gradient(self, loss: Tensor) -> Tensor:
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([gradient.reshape(-1) for gradient in gradients])

    def _summed(self, blocks: Sequence[Collocation], most: int | None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Loss, gradient and terms as sums over parts of the points, each with a graph of its own."""
        terms: dict[str, Tensor] = {}
        gradient = torch.zeros_like(self.vector())
        for block in blocks:
            # What is averaged before it is squared has a sum that is known before its gradient can be.
            averaged = {} if block.sample.quadrature is None else self.rows.numbers([block])
            terms |= self.means([block]) if averaged else {}
            for _, part in block.parts(most):
                if averaged:
                    weight = 1.0 if block.weights is None else float(block.weights.mean())
                    pulls = {name: 2 * weight / len(each) * each / self.scales[name] ** 2 for name, each in averaged.items()}
                    means = {name: (pulls[name] * each).sum() for name, each in self.rows.residuals([part]).items()}
                else:
                    means = self.terms([part])
                    for name, each in means.items():
                        terms[name] = terms[name] + each.detach() if name in terms else each.detach()
                total = self.total(means)
                if total.requires_grad:
                    gradient += self._gradient(total)
        return self.total(terms) if terms else gradient.new_zeros(()), gradient, terms

    def foretold_bytes(self) -> float:
        """About how many bytes a gradient takes with all points at once, from what it takes with a few."""
        return sum(self._bytes_a_point(block) * block.size for block in self.blocks if block.size >= _MANY)

    def limit(self, most: float) -> None:
        """Take so many points at a time that a gradient keeps within some bytes."""
        if self.foretold_bytes() > most:
            each = max(self._bytes_a_point(block) for block in self.blocks if block.size >= _MANY)
            self.rows.portion.size = max(_FEW, int(most / each))

    def _bytes_a_point(self, block: Collocation) -> float:
        few, more = (
            kept_bytes(lambda count=count: self.total(self.terms([block.piece(slice(0, count))])))  # type: ignore[misc]
            for count in (_FEW, 2 * _FEW)
        )
        return (more - few) / _FEW

    def pulls(self) -> dict[str, Tensor]:
        """The gradient of each term as one vector, without the term's weight."""
        ones, found = dict.fromkeys(self.weights, 1.0), {}
        for block in self.blocks:
            for term in block.terms:
                alone = Objective(self.rows, (replace(block, terms=(term,)),), self.scales, ones, self.parameters)
                found[term.name] = alone.evaluate()[1]
        return found

    def linearised(
        self, blocks: Sequence[Collocation] | None = None, weights: Mapping[str, float] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The rows, scaled so that their squares add up to the loss, and their Jacobian; of these blocks and weights or all."""
        blocks = self.blocks if blocks is None else blocks
        if not process_group.several():
            return self._linearised(blocks, weights)
        values, slopes = [], []
        for block in blocks:
            mine = block.piece(process_group.current().slice_of(block.size)) if block.divided else block
            both = torch.cat([each.view(len(each), -1) for each in reversed(self._linearised([mine], weights))], dim=1)
            if mine is not block:
                # Rows come term by term, and of each term point by point.
                both = both.view(len(block.terms), mine.size, -1).transpose(0, 1)
                both = process_group.gathered(both, block.size).transpose(0, 1).reshape(block.size * len(block.terms), -1)
            values.append(both[:, -1])
            slopes.append(both[:, :-1])
        return torch.cat(values), torch.cat(slopes)

    def own_rows(self) -> tuple[Tensor, Tensor]:
        """Those rows and slopes that this process computes: with those of the others they are all, each once."""
        return self._linearised(shares(self.blocks))

    def _linearised(self, blocks: Sequence[Collocation], weights: Mapping[str, float] | None = None) -> tuple[Tensor, Tensor]:
        factors = self.roots(blocks, weights)
        raw = {id(value) for value in self.rows.raw.values()}
        model = [parameter for parameter in self.parameters if id(parameter) not in raw]
        # The parts that a Jacobian is made of are smaller where memory holds no larger ones.
        return self.rows.portion.attempt(lambda _: jacobian(self.rows, blocks, factors, model), _largest(blocks))

    def roots(self, blocks: Sequence[Collocation], weights: Mapping[str, float] | None = None) -> dict[str, float | Tensor]:
        """What the residuals of each term are multiplied by, so that their squares add up to the loss."""
        weights = self.weights if weights is None else weights
        found: dict[str, float | Tensor] = {}
        for block in blocks:
            root = 1.0 if block.weights is None else block.weights.sqrt()
            height = block.height if block.whole is None else block.whole
            for term in block.terms:
                found[term.name] = root * (math.sqrt(weights[term.name] / height) / self.scales[term.name])
        return found

    def value(self) -> float:
        """The loss at the present parameters, nothing else."""
        return float(self.total(self.means()))

    def vector(self) -> Tensor:
        """The parameters as one vector (a copy)."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])

    def assign(self, vector: Tensor) -> None:
        """Write a vector back into the parameters."""
        with torch.no_grad():
            for parameter, piece in self._pieces(vector):
                parameter.copy_(piece)

    def set_gradient(self, vector: Tensor) -> None:
        """Hand a gradient to the parameters, where ``torch.optim`` looks for it."""
        for parameter, piece in self._pieces(vector):
            parameter.grad = piece

    def split(self, vector: Tensor) -> list[Tensor]:
        """A vector in the shapes of the parameters."""
        return [part for _, part in self._pieces(vector)]

    def _pieces(self, vector: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each parameter with its part of a vector."""
        parts = vector.split([parameter.numel() for parameter in self.parameters])
        return [(parameter, part.view_as(parameter)) for parameter, part in zip(self.parameters, parts, strict=True)]


def _largest(blocks: Sequence[Collocation]) -> int:
    """The number of points of the largest block."""
    return max((block.size for block in blocks), default=1)
