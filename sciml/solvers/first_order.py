"""First-order methods: any ``torch.optim`` optimizer with any scheduler."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from sciml.errors import SolverError
from sciml.models import model_of
from sciml.models.base import part
from sciml.problem.collocation import Collocation
from sciml.solvers.base import Run, Solver, Step, check_settings
from sciml.solvers.nonfinite import described
from sciml.solvers.objective import Objective

OptimizerFactory = Callable[[Iterable[Tensor]], torch.optim.Optimizer]

UNKNOWNS = "unknowns"

# The smallest fraction of the learning rate, and how many times the first loss counts as divergence.
_LEAST_SHARE, _RUN_AWAY = 2.0**-20, 1e6
# A place is good where the loss is at most so many times its lowest running mean; the weight of the last loss in that mean.
_NEARLY, _RECENT = 10.0, 0.1
# What a run keeps beside its optimizer and scheduler, as plain values.
_PLAIN = ("share", "why", "several", "most", "mean", "lowest")


class FirstOrder(Solver):
    """First-order methods: any optimizer of ``torch.optim``, with any scheduler, on all points or on random batches.

    Args:
        optimizer: a class of ``torch.optim``, or any function from parameters to an optimizer.
        steps: the number of steps.
        scheduler: a class of ``torch.optim.lr_scheduler``, or any function from the optimizer to a scheduler; None keeps
            the learning rate.
        scheduler_options: keywords for a scheduler class.
        clip: the largest norm of the gradient; longer ones are scaled down. None does not clip.
        batch: the most points of every place (the inside, faces, measurements) that a step uses, drawn afresh for each step
            without replacement; None uses all. The loss of a step is then that of its batch. Rows of a lazy table come in
            batches of this size (by default 8,192), every row once before any comes again.
        seed: seed of these draws.
        look: steps between reports on held-out rows.
        rates: learning rates of their own for parts of the model, by their names in ``model.named_modules()`` with wildcards
            as in a shell, and for unknown constants, by name or all as ``"unknowns"``:
            ``{"layers.0": 1e-4, "unknowns": 1e-2}``. Of several names for a parameter the longest counts. A scheduler moves all
            rates in the same proportion.
        options: keywords for the optimizer class, such as ``lr=1e-3``.

    Raises:
        SolverError: an optimizer object was given (it belongs to the parameters of another model), or a rate is not positive;
            when a run begins, the optimizer or scheduler cannot be made.
        ModelError: when a run begins, ``rates`` names no part of the model and no unknown.

    Example:
        >>> import torch, sciml
        >>> solver = sciml.FirstOrder(
        ...     torch.optim.AdamW, steps=500, lr=1e-3,
        ...     scheduler=torch.optim.lr_scheduler.CosineAnnealingLR, scheduler_options={"T_max": 500},
        ... )
        >>> solver.name
        'AdamW'
    """

    def __init__(
        self,
        optimizer: OptimizerFactory,
        steps: int = 2000,
        *,
        scheduler: Callable[..., LRScheduler] | None = None,
        scheduler_options: Mapping[str, Any] | None = None,
        clip: float | None = None,
        batch: int | None = None,
        seed: int = 0,
        look: int = 50,
        rates: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(optimizer, torch.optim.Optimizer):
            raise SolverError(
                f"an optimizer object belongs to the parameters it was made with, and fit trains a copy: give the class, "
                f"as in FirstOrder(torch.optim.{type(optimizer).__name__}, steps={steps}, lr=...)"
            )
        self.optimizer, self.options = optimizer, options
        self.scheduler, self.scheduler_options = scheduler, dict(scheduler_options or {})
        self.steps, self.look, self.clip, self.batch, self.seed = steps, look, clip, batch, seed
        self.rates = dict(rates or {})
        check_settings(self, whole="steps look batch")
        for name, rate in self.rates.items():
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
                frozen = "what is not to change at all goes into fit(..., freeze=...)"
                raise SolverError(f"rates: {name!r} needs a positive learning rate; given: {rate!r} ({frozen})")

    @property
    def name(self) -> str:
        return getattr(self.optimizer, "__name__", type(self).__name__)

    def start(self, objective: Objective) -> Run:
        return _FirstOrderRun(self, objective)


class Adam(FirstOrder):
    """Adam with a learning rate that falls to a hundredth by a cosine; all other arguments are those of ``FirstOrder``.

    Args:
        steps: the number of steps.
        lr: the learning rate at the start.

    Example:
        >>> import sciml
        >>> sciml.Adam(1000, lr=1e-3).steps
        1000

    Reference: D. P. Kingma and J. Ba, Adam: a method for stochastic optimization, ICLR 2015.
    """

    def __init__(
        self,
        steps: int = 2000,
        lr: float = 5e-3,
        *,
        clip: float | None = 10.0,
        batch: int | None = None,
        seed: int = 0,
        look: int = 50,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        self.lr = lr
        cosine: dict[str, Any] = {"T_max": steps, "eta_min": lr / 100}
        common: dict[str, Any] = {"clip": clip, "batch": batch, "seed": seed, "look": look, "rates": rates}
        annealing = torch.optim.lr_scheduler.CosineAnnealingLR
        super().__init__(torch.optim.Adam, steps, scheduler=annealing, scheduler_options=cosine, lr=lr, **common)


def groups_of(objective: Objective, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """The parameters in groups for ``torch.optim``: first all without a rate of their own, then a group for each rate."""
    raw = objective.rows.raw
    named: dict[str, list[Tensor]] = {}
    model = model_of(objective.rows.trial) or objective.rows.trial
    for name in rates:
        unknowns = list(raw.values()) if name == UNKNOWNS else [raw[name]] if name in raw else []
        named[name] = unknowns or part(model, name, "rates", (*raw, *([UNKNOWNS] if raw else [])))
    owner: dict[int, str] = {}
    # Longer names, and an unknown's own, are more particular and overwrite others.
    for name in sorted(named, key=lambda name: (name != UNKNOWNS, len(name))):
        owner |= {id(parameter): name for parameter in named[name]}

    def group(name: str | None) -> list[Tensor]:
        return [each for each in objective.parameters if owner.get(id(each)) == name]

    return [{"params": group(None)}, *({"params": group(name), "lr": rate} for name, rate in rates.items())]


class _FirstOrderRun(Run):
    def __init__(self, solver: FirstOrder, objective: Objective) -> None:
        self._objective = objective
        self._clip, self._batch = solver.clip, solver.batch
        # On the CPU wherever the points are, so that the draws are the same everywhere.
        self._generator = torch.Generator().manual_seed(solver.seed)
        groups: Any = groups_of(objective, solver.rates) if solver.rates else objective.parameters
        try:
            self._optimizer = solver.optimizer(groups, **solver.options)
            # What the first group, of all that is not named, does with its rate the others do in proportion.
            first = self._optimizer.param_groups[0].get("lr", 1.0)
            named = self._optimizer.param_groups[1:] if solver.rates else []
            self._shares = [group.get("lr", 1.0) / first for group in named]
            make = solver.scheduler
            self._scheduler: Any = None if make is None else make(self._optimizer, **solver.scheduler_options)
            self._keep_shares()
        except (TypeError, ValueError, KeyError) as error:
            raise SolverError(f"{solver.name} or its scheduler cannot be made with these settings: {error}") from error
        # The fraction of the rates since a step led to where nothing is finite, and the last place that was good.
        self._share, self._why, self._several, self._most = 1.0, "", False, 0.0
        # The running mean of the loss, and the lowest that it has been.
        self._mean = self._lowest = math.inf
        self._good: Tensor | None = None

    def step(self) -> Step:
        part = None
        if self._batch is not None or self._objective.feed is not None:
            part = [self._drawn(block) for block in self._objective.next_blocks()]
        used, message = 0, ""
        while True:
            before, seen = self._good, list[tuple[Tensor, dict[str, Tensor]]]()
            if self._attempt(part, seen):
                break
            used += len(seen)
            grown = f"the loss grew to {float(seen[-1][0]):.1e} or its gradient beyond all numbers"
            why = described(self._objective, grown, part)
            # An optimizer that had already moved has left a good place in this very step.
            message = self._retreated(self._good if len(seen) > 1 else before, why)
            if not message:
                tried = "" if self._share == 1.0 else f", though the learning rate was halved {self._halvings} time(s)"
                return Step(*seen[-1], used, "diverged", why + tried)
        if self._scheduler is not None:
            self._scheduler.step(*([seen[0][0]] if isinstance(self._scheduler, ReduceLROnPlateau) else []))
        self._keep_shares()
        return Step(*seen[0], used + len(seen), message=message)

    def _attempt(self, part: list[Collocation] | None, seen: list[tuple[Tensor, dict[str, Tensor]]]) -> bool:
        """One step of the optimizer; whether all was finite. What was evaluated on the way is added to ``seen``."""

        def closure() -> Tensor:
            loss, gradient, terms = self._objective.evaluate() if part is None else self._objective.evaluate(part)
            seen.append((loss, terms))
            norm = gradient.norm()
            # Together: on a GPU every number that is asked for waits for all that was queued before it.
            size, value = torch.stack([norm, loss]).tolist()
            self._several = self._several or len(seen) > 1
            self._most = self._most or _RUN_AWAY * max(value, 1.0)
            if not (math.isfinite(size) and value <= self._most):
                raise _NotFiniteError
            # An optimizer asks first where it stands; what it tries after that is no place that it has chosen.
            if len(seen) == 1:
                # Losses of parts scatter, and one lucky part would make every other place look bad.
                self._mean = value if math.isinf(self._mean) else self._mean + _RECENT * (value - self._mean)
                self._lowest = min(self._lowest, self._mean)
                if min(value, self._mean) <= _NEARLY * self._lowest:
                    self._good = self._objective.vector()
            if self._clip is not None and size > self._clip:
                gradient = gradient * (self._clip / norm)
            self._objective.set_gradient(gradient)
            return loss

        rates = [(group, group["lr"]) for group in self._optimizer.param_groups if "lr" in group]
        try:
            for group, rate in rates:
                group["lr"] = self._share * rate
            # An optimizer calls its closure before it changes a parameter with what came of it, so a gradient that is not
            # finite, or that of a loss beyond all reason, never reaches them.
            self._optimizer.step(closure)  # type: ignore[arg-type]
        except _NotFiniteError:
            return False
        finally:
            # To a scheduler the rates are its own.
            for group, rate in rates:
                group["lr"] = rate
        return True

    def _retreated(self, good: Tensor | None, why: str) -> str:
        """Go back to the last good parameters, at half the rate; a note on it, empty where nothing is left."""
        first, halved = self._optimizer.param_groups[0].get("lr"), self._share / 2
        if good is None or first is None or halved < _LEAST_SHARE or torch.equal(good, self._objective.vector()):
            return ""
        self._objective.assign(good)
        # Moments are made of finite gradients alone and stay; pairs of moves and differences of gradients do not.
        if self._several:
            self._optimizer.state.clear()
        self._share, self._why = halved, self._why or why
        return (
            f"the learning rate was halved {self._halvings} time(s), to {halved * float(first):.2g}, and steps were taken back "
            f"(at first because {self._why})"
        )

    @property
    def _halvings(self) -> int:
        return round(-math.log2(self._share))

    def renewed(self) -> None:
        """Other points or weights: losses are no longer those of before."""
        self._mean = self._lowest = math.inf

    def _drawn(self, block: Collocation) -> Collocation:
        if self._batch is None or block.size <= self._batch:
            return block
        chosen = torch.randperm(block.size, generator=self._generator)[: self._batch]
        return block.part(chosen.to(block.sample.points[0].device))

    def _keep_shares(self) -> None:
        """Bring the rates of named groups back into their proportion to the first one's."""
        first, *others = self._optimizer.param_groups
        for group, ratio in zip(others, self._shares, strict=False):
            group["lr"] = ratio * first["lr"]

    def state_dict(self) -> dict[str, Any]:
        return {
            # Later steps change the optimizer's tensors in their place.
            "optimizer": copy.deepcopy(self._optimizer.state_dict()),
            "scheduler": None if self._scheduler is None else copy.deepcopy(self._scheduler.state_dict()),
            "generator": self._generator.get_state(),
            "good": None if self._good is None else self._good.clone(),
            **{name: getattr(self, f"_{name}") for name in _PLAIN},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        own = copy.deepcopy(dict(state))
        self._optimizer.load_state_dict(own["optimizer"])
        self._restore_types(own["optimizer"])
        self._generator.set_state(own["generator"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(own["scheduler"])
        self._good = own["good"]
        for name in _PLAIN:
            setattr(self, f"_{name}", own.get(name, getattr(self, f"_{name}")))

    def _restore_types(self, saved: Mapping[str, Any]) -> None:
        """Put tensors back as they were saved: torch casts what belongs to a parameter to the parameter's own type."""
        for group, old in zip(self._optimizer.param_groups, saved["param_groups"], strict=True):
            for parameter, number in zip(group["params"], old["params"], strict=True):
                held = self._optimizer.state[parameter]
                for name, value in saved["state"].get(number, {}).items():
                    if isinstance(value, Tensor) and held[name].dtype != value.dtype:
                        held[name] = value.to(held[name].device)


class _NotFiniteError(ArithmeticError):
    """Leaves an optimizer's step before it touches the parameters."""
