r"""Checkup: gradients by term and by layer, and the singular values of the Jacobian, as tables and as sentences.

With A the derivative of the scaled rows by the model's parameters and B that by the unknowns, the part of B that no change of
the model imitates is :math:`B^\perp = (I - UU^T)B`, U being a basis of the range of A. Where the norm of a column of it is
small beside that of B, or the columns are nearly dependent, unknowns are hardly determined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sciml.diagnostics.layer_trace import Passage, own_model, passages
from sciml.problem.observations import is_measured
from sciml.solvers import Objective
from sciml.typing import Array
from sciml.uncertainty.covariance import eliminated

_CONFLICT, _WEAKEST, _VANISHING = -0.5, 1e-3, 1e-4
_DEAD, _SATURATED = 0.2, 0.8
_OWN, _WEAK, _ALIKE, _ILL = 1e-3, 1e-4, 0.98, 1e8
_REACHABLE, _SMALL = 0.5, 1e-4
_FLAT_SLOPE, _DEAD_SLOPE, _DIGITS = 1e-2, 1e-6, 1e-8


@dataclass(frozen=True, repr=False, eq=False)
class Checkup:
    """Gradients, singular values and findings that keep a fit from getting better, or kept it.

    Attributes:
        name: of the problem.
        findings: DataFrame of the findings of ``preflight``: ``kind``, ``where``, ``what``, ``remedy``, ``severity``.
        terms: DataFrame indexed by term: ``scale`` (natural size, in the residual's unit), ``relative`` (root mean square by
            scale), ``weight``, ``share`` of the loss, ``gradient`` (the norm of the weighted term's).
        conflicts: DataFrame of cosines between the gradients of terms: -1 where two pull against each other.
        layers: DataFrame indexed by layer, as in ``model.named_modules()``: ``kind``, ``parameters`` (their number),
            ``weights`` and ``gradient`` (norms), ``spread`` (the median over units of the standard deviation over points),
            ``dead`` and ``saturated`` (of activations: the share of units whose slope is zero at all points, and of slopes
            below a hundredth of the largest).
        jacobian: DataFrame of one row: ``rows``, ``parameters``, ``rank`` (of double precision), ``largest`` and ``smallest``
            singular value, ``condition``, and ``reachable``, the share of the loss that the best linear step would take away.
        spectrum: DataFrame of the singular values.
        unknowns: DataFrame indexed by name: ``value``, ``own`` (the share of its column that the model cannot imitate),
            ``expected`` (what that would be of random numbers; 0 where the model imitates everything), ``weakest`` (how
            much of it is in the direction that is determined worst), ``singular`` (the singular value of that direction by the
            largest of the unknowns' columns), ``correlated`` (the unknown it is most correlated with) and ``correlation``.
        artefacts: DataFrame of the files of a run: ``file``, ``generation``, ``state``, ``advice``; empty without a directory.
        trained: whether it is that of a solution and not of a beginning.

    Example:
        >>> import sciml
        >>> checkup = sciml.doctor(sciml.gallery.problem("heat_rod"), sciml.MLP(8), points=64)
        >>> list(checkup.terms.index)
        ['conduction', 'initial', 'dirichlet']
        >>> int(checkup.jacobian.loc[0, "parameters"])
        33
    """

    name: str
    findings: pd.DataFrame
    artefacts: pd.DataFrame
    terms: pd.DataFrame = field(default_factory=pd.DataFrame)
    conflicts: pd.DataFrame = field(default_factory=pd.DataFrame)
    layers: pd.DataFrame = field(default_factory=pd.DataFrame)
    jacobian: pd.DataFrame = field(default_factory=pd.DataFrame)
    spectrum: pd.DataFrame = field(default_factory=pd.DataFrame)
    unknowns: pd.DataFrame = field(default_factory=pd.DataFrame)
    trained: bool = False

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the tables show and what to do; a single sentence where nothing stands out."""
        found = [f"{row['what']}{row['remedy'] and ': ' + row['remedy']}" for _, row in self.findings.iterrows()]
        found += [*self._of_terms(), *self._of_layers(), *self._of_jacobian(), *self._of_unknowns()]
        found += [
            f"{row['file']} ({row['generation']}) is {row['state']}: {row['advice']}" for _, row in self.broken.iterrows()
        ]
        return tuple(found) or ("nothing stands out",)

    @property
    def broken(self) -> pd.DataFrame:
        """The rows of ``artefacts`` that are damaged or missing; nothing is known of files that are not listed, as logs."""
        return self.artefacts[~self.artefacts["state"].isin(["whole", "unlisted"])] if len(self.artefacts) else self.artefacts

    def tables(self) -> Iterator[tuple[str, str, pd.DataFrame]]:
        """The tables that are not empty, each with a title and what it means."""
        meanings = {
            "terms": "relative residuals should fall below 0.05; a term with hardly a gradient does not fall",
            "conflicts": "cosines between gradients: near -1 one term undoes another's steps",
            "layers": "a gradient far below the others does not train its layer; dead units do nothing",
            "jacobian": "first-order solvers crawl along small singular values; least squares does not mind",
            "unknowns": "own near 0: the model imitates it; correlation near 1: two are known together alone",
            "artefacts": "files of the run against their checksums",
        }
        for title, meaning in meanings.items():
            if len(frame := getattr(self, title)):
                yield title, meaning, frame

    def __repr__(self) -> str:
        return f"Checkup({self.name}: {len(self.sentences)} sentences)"

    def __str__(self) -> str:
        parts = [f"{title}: {meaning}\n{frame.to_string(float_format='%.3g')}" for title, meaning, frame in self.tables()]
        head = "\n".join([f"checkup of {self.name}", *(f"- {each}" for each in self.sentences)])
        return "\n\n".join([head, *parts])

    @property
    def _good(self) -> bool:
        """True if all that is left are measurements, whose scatter nothing explains."""
        own = [value for name, value in self.terms["relative"].items() if not is_measured(str(name))]
        return self.trained and max(own, default=0.0) < _SMALL

    def _of_terms(self) -> Iterator[str]:
        if not len(self.terms):
            return
        wild = [str(name) for name, value in self.terms["relative"].items() if not math.isfinite(float(value))]
        if wild:
            yield (
                f"the residuals of {', '.join(wild)} are not finite: look at their coefficients, or start from smaller weights"
            )
            return
        gradients = self.terms["gradient"]
        least = _WEAKEST * float(gradients.max())
        for name, row in self.terms.iterrows():
            scatter = self.trained and is_measured(str(name))
            if not scatter and row["relative"] > _SMALL and not len(self.conflicts):
                yield (
                    f"{name!r} misses by {row['relative']:.1e} of its natural size: what was found does not solve it; "
                    "solution.message says why"
                )
            elif not scatter and row["relative"] > _SMALL and row["gradient"] < least:
                yield (
                    f"{name!r} has {row['gradient'] / gradients.max():.0e} of the largest gradient and a residual of "
                    f"{row['relative']:.1e}: it hardly counts in a step; raise its weight, or weights=sciml.Balanced()"
                )
        for one, two in combinations(self.conflicts.index, 2):
            cosine, strong = float(self.conflicts.loc[one, two]), min(gradients[[one, two]]) > least
            if cosine < _CONFLICT and strong and not self._good:
                yield (
                    f"{one!r} and {two!r} pull against each other (cosine {cosine:.2f})"
                    f"{', as at any compromise' if self.trained else ''}: exact=True takes conditions out of the struggle, "
                    "sciml.LeastSquares sees all rows at once"
                )

    def _of_layers(self) -> Iterator[str]:
        if not len(self.layers):
            return
        varied = self.layers["gradient"].dropna().astype(float)
        largest = float(varied.max()) if len(varied) else 0.0
        for name, value in varied.items():
            if value < _VANISHING * largest:
                yield (
                    f"layer {name} gets {value / largest:.0e} of the largest gradient: it hardly trains; fewer layers, or "
                    "blocks with a way around (sciml.ResidualBlock)"
                )
        for name, row in self.layers.iterrows():
            if row["dead"] > _DEAD:
                yield (
                    f"{row['dead']:.0%} of the units of {name} ({row['kind']}) are dead: smaller weights at the start, or a "
                    "smooth activation without a flat side"
                )
            elif row["saturated"] > _SATURATED:
                yield (
                    f"{row['saturated']:.0%} of the slopes of {name} ({row['kind']}) are flat: its inputs are too large; "
                    "smaller weights before it, or sin"
                )

    def _of_jacobian(self) -> Iterator[str]:
        if not len(self.jacobian) or self._good:
            return
        row = self.jacobian.iloc[0]
        # Fewer rows than parameters leave directions unseen whatever the model is.
        if row["rank"] < row["parameters"] <= row["rows"]:
            yield (
                f"the {row['rows']:.0f} rows used determine {row['rank']:.0f} of {row['parameters']:.0f} directions of the "
                "parameters, to double precision: first-order solvers do not move along the others; sciml.LeastSquares or "
                "sciml.SSBroyden"
            )
        elif row["condition"] > _ILL and row["parameters"] <= row["rows"]:
            yield (
                f"the condition number is {row['condition']:.0e}: Adam needs as many steps as its square root at least; "
                "sciml.LeastSquares or sciml.SSBroyden"
            )
        if self.trained and row["rank"] < 0.9 * row["rows"] and row["reachable"] > _REACHABLE:
            yield (
                f"one linear least-squares step would take away {row['reachable']:.0%} of the loss: training ended early; go "
                "on with fit(..., start=solution, solver=sciml.LeastSquares())"
            )

    def _of_unknowns(self) -> Iterator[str]:
        for name, row in self.unknowns.iterrows():
            # Of a column of random numbers as much is left as there are rows beyond the directions of the model.
            if row["expected"] <= 0:
                continue
            if row["own"] < _OWN * row["expected"]:
                yield (
                    f"the unknown {name!r} is nearly undetermined: a change of the model imitates all but {row['own']:.0e} of "
                    "what it does; measure more, give it a prior, or take it as known"
                )
            elif row["singular"] < _WEAK * row["expected"] and row["weakest"] > 0.3:
                yield (
                    f"the unknown {name!r} is part of a combination that is nearly undetermined (singular value "
                    f"{row['singular']:.0e}): fix one of them, or give a prior"
                )
            if row["correlated"] and abs(row["correlation"]) > _ALIKE and str(name) < str(row["correlated"]):
                yield (
                    f"{name!r} and {row['correlated']!r} are known together alone (correlation {row['correlation']:.3f}): "
                    "only a combination of them is determined"
                )


def term_gradients(objective: Objective) -> tuple[dict[str, pd.DataFrame], Tensor]:
    """The tables ``terms`` and ``conflicts`` of a ``Checkup``, and the gradient of the loss, shape ``(p,)``.

    Coefficients of polynomials on tiles are no parameters: of these there are the terms alone.
    """
    values = {name: float(value) for name, value in objective.means().items()}
    losses = {name: objective.weights[name] * value for name, value in values.items()}
    pulls = objective.pulls() if objective.parameters else {}
    gradients = {name: objective.weights[name] * pull for name, pull in pulls.items()}
    total = sum(losses.values())
    rows = {
        name: {
            "scale": objective.scales[name],
            "relative": math.sqrt(max(value, 0.0)) if math.isfinite(value) else value,
            "weight": objective.weights[name],
            "share": losses[name] / total if total > 0 else 0.0,
            "gradient": float(gradients[name].norm()) if gradients else math.nan,
        }
        for name, value in values.items()
    }
    if not gradients:
        return {"terms": pd.DataFrame.from_dict(rows, orient="index")}, torch.zeros(0)
    matrix = torch.stack(list(gradients.values()))
    unit = matrix / matrix.norm(dim=1, keepdim=True).clamp(min=1e-300)
    cosines = pd.DataFrame((unit @ unit.T).clamp(-1, 1).cpu().numpy(), index=list(gradients), columns=list(gradients))
    return {"terms": pd.DataFrame.from_dict(rows, orient="index"), "conflicts": cosines}, matrix.sum(dim=0)


def layer_states(trial: nn.Module, parameters: Sequence[Tensor], gradient: Tensor, points: Tensor) -> pd.DataFrame:
    """The table ``layers`` of a ``Checkup``."""
    sizes = [parameter.numel() for parameter in parameters]
    pieces = dict(zip(map(id, parameters), gradient.split(sizes), strict=True))
    found: dict[str, dict[str, object]] = {}
    modules = dict(own_model(trial).named_modules())
    before: Passage | None = None
    for passage in (each for each in passages(trial, points) if each.leaf):
        if before is not None and before.out and passage.into and before.out[0] is not passage.into[0]:
            # An activation that is a function in a forward, between two layers.
            slopes = _slopes(before.out[0], passage.into[0])
            if slopes:
                row = {"kind": "function", "parameters": 0, **_spread(passage.into[0]), **slopes}
                found[f"{before.path} to {passage.path}"] = row
        own = list(modules[passage.path].parameters(recurse=False))
        row = {"kind": passage.kind, "parameters": sum(each.numel() for each in own)}
        if own:
            varied = [pieces[id(each)] for each in own if id(each) in pieces]
            row["weights"] = float(torch.cat([each.detach().reshape(-1) for each in own]).norm())
            row["gradient"] = float(torch.cat(varied).norm()) if varied else 0.0
        if passage.out:
            row |= _spread(passage.out[0])
        if not own and passage.into and passage.out:
            row |= _slopes(passage.into[0], passage.out[0])
        found[passage.path or type(own_model(trial)).__name__] = row
        before = passage
    columns = ["kind", "parameters", "weights", "gradient", "spread", "dead", "saturated"]
    return pd.DataFrame.from_dict(found, orient="index", columns=columns)


def _spread(values: Tensor) -> Mapping[str, float]:
    if not values.is_floating_point() or values.ndim < 2 or len(values) < 2:
        return {}
    return {"spread": float(values.detach().reshape(len(values), -1).std(dim=0).median())}


def _slopes(into: Tensor, out: Tensor) -> dict[str, float]:
    """How many units are dead and how many slopes flat, of what maps number by number; nothing of anything else."""
    if into.shape != out.shape or into.ndim != 2 or not out.requires_grad or not into.requires_grad:
        return {}
    (slope,) = torch.autograd.grad(out.sum(), into, retain_graph=True, allow_unused=True)
    if slope is None:
        return {}
    sizes = slope.detach().abs()
    largest = float(sizes.max())
    if not largest > 0:
        return {"dead": 1.0, "saturated": 1.0}
    return {
        "dead": float((sizes.amax(dim=0) <= _DEAD_SLOPE * largest).double().mean()),
        "saturated": float((sizes <= _FLAT_SLOPE * largest).double().mean()),
    }


def conditioning(objective: Objective) -> dict[str, pd.DataFrame]:
    """The tables ``jacobian``, ``spectrum`` and ``unknowns`` of a ``Checkup``, for some thousands of rows and parameters."""
    values, slopes = (each.detach().double().cpu() for each in objective.linearised())
    finite = torch.isfinite(values) & torch.isfinite(slopes).all(dim=1)
    values, slopes = values[finite], slopes[finite]
    left, singular, _ = torch.linalg.svd(slopes, full_matrices=False)
    largest, smallest = (float(singular[place]) if len(singular) else 0.0 for place in (0, -1))
    rank = int((singular > max(slopes.shape) * torch.finfo(torch.float64).eps * largest).sum())
    loss = float(values.square().sum())
    gone = float((left[:, singular > _DIGITS * largest].T @ values).square().sum())
    row = {
        "rows": len(values),
        "parameters": slopes.shape[1],
        "rank": rank,
        "largest": largest,
        "smallest": smallest,
        "condition": largest / smallest if smallest > 0 else math.inf,
        "reachable": gone / loss if loss > 0 else 0.0,
    }
    unknowns = {name: float(value.detach()) for name, value in objective.rows.values().items()}
    width = slopes.shape[1] - len(unknowns)
    return {
        "jacobian": pd.DataFrame([row]),
        "spectrum": pd.DataFrame({"singular": singular.numpy()}),
        "unknowns": _unknowns(unknowns, slopes[:, :width].numpy(), slopes[:, width:].numpy()),
    }


def _unknowns(values: Mapping[str, float], model: Array, own: Array) -> pd.DataFrame:
    if not values:
        return pd.DataFrame()
    basis, rest, _ = eliminated(model, own)
    expected = 1.0
    if model.shape[1]:
        expected = math.sqrt(max(0, len(own) - basis.shape[1] - own.shape[1]) / max(len(own), 1))
    norms, seen = np.linalg.norm(own, axis=0), np.linalg.norm(rest, axis=0)
    _, singular, right = np.linalg.svd(rest, full_matrices=True)
    whole = np.concatenate([singular, np.zeros(len(values) - len(singular))])
    floor = max(float(norms.max()), 1e-300)
    covariance = (right.T * (1 / np.maximum(whole, 1e-12 * floor)) ** 2) @ right
    sizes = np.sqrt(np.diag(covariance))
    correlations = covariance / np.outer(sizes, sizes)
    others = np.abs(correlations - np.diag(np.diag(correlations))).argmax(axis=1)
    several, places = len(values) > 1, np.arange(len(values))
    return pd.DataFrame(
        {
            "value": list(values.values()),
            "own": np.divide(seen, norms, out=np.zeros_like(seen), where=norms > 0),
            "expected": expected,
            "weakest": np.abs(right[-1]),
            "singular": whole[-1] / floor,
            "correlated": [list(values)[other] if several else "" for other in others],
            "correlation": correlations[places, others] if several else 0.0,
        },
        index=list(values),
    )
