"""``Checkup``: what ``doctor`` found, as tables and as sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from sciml.problem.observations import is_measured

_CONFLICT = -0.5

_UNHEARD = 1e-3

_VANISHING = 1e-4

_DEAD, _SATURATED = 0.2, 0.8

_ILL = 1e8

_OWN, _WEAK, _ALIKE = 1e-3, 1e-4, 0.98

_REACHABLE, _SMALL = 0.5, 1e-4


@dataclass(frozen=True, repr=False, eq=False)
class Checkup:
    """What keeps a fit from getting better, or what kept it.

    Attributes:
        name: of the problem.
        findings: DataFrame of the findings of ``preflight``: ``kind``, ``where``, ``what``, ``remedy``, ``severity``.
        terms: DataFrame indexed by term: ``scale``, ``relative``, ``weight``, ``share`` of the loss, ``gradient`` (its norm).
        conflicts: DataFrame of cosines between the gradients of terms: -1 where two pull against each other.
        layers: DataFrame indexed by layer: ``kind``, ``parameters``, ``weights``, ``gradient``, ``spread``, ``dead``,
            ``saturated``.
        jacobian: DataFrame of one row: ``rows``, ``parameters``, ``rank``, ``largest``, ``smallest``, ``condition``,
            ``reachable``.
        spectrum: DataFrame of the singular values.
        unknowns: DataFrame indexed by name: ``value``, ``own``, ``expected``, ``weakest``, ``singular``, ``correlated``,
            ``correlation``.
        artefacts: DataFrame of the files of a run: ``file``, ``generation``, ``state``, ``advice``; empty without a directory.
        trained: whether a solution was looked at and not a beginning.

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
    terms: pd.DataFrame
    conflicts: pd.DataFrame
    layers: pd.DataFrame
    jacobian: pd.DataFrame
    spectrum: pd.DataFrame
    unknowns: pd.DataFrame
    artefacts: pd.DataFrame
    trained: bool = False

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the tables say and what to do; a single sentence where nothing stands out."""
        found = [
            *(
                f"{row['what']}: {row['remedy']}" if row["remedy"] else row["what"]
                for _, row in self.findings.iterrows()
            ),
            *self._of_terms(),
            *self._of_layers(),
            *self._of_jacobian(),
            *self._of_unknowns(),
            *self._of_artefacts(),
        ]
        return tuple(found) or ("nothing stands out",)

    def tables(self) -> Iterator[tuple[str, str, pd.DataFrame]]:
        """The tables that are not empty, each with a title and what it means."""
        for title, meaning, frame in (
            (
                "terms",
                "relative residuals should fall below 0.05; a term with hardly a gradient is not heard",
                self.terms,
            ),
            ("conflicts", "cosines between gradients: near -1 one term undoes another's steps", self.conflicts),
            ("layers", "a gradient far below the others does not train its layer; dead units do nothing", self.layers),
            (
                "jacobian",
                "first-order solvers crawl along small singular values; least squares does not mind",
                self.jacobian,
            ),
            (
                "unknowns",
                "own near 0: the model imitates it; correlation near 1: two are known together alone",
                self.unknowns,
            ),
            ("artefacts", "files of the run against their checksums", self.artefacts),
        ):
            if len(frame):
                yield title, meaning, frame

    def __repr__(self) -> str:
        return f"Checkup({self.name}: {len(self.sentences)} sentences)"

    def __str__(self) -> str:
        parts = [
            f"{title}: {meaning}\n{frame.to_string(float_format='%.3g')}" for title, meaning, frame in self.tables()
        ]
        head = "\n".join([f"checkup of {self.name}", *(f"- {each}" for each in self.sentences)])
        return "\n\n".join([head, *parts])

    @property
    def _good(self) -> bool:
        """Whether all that is left are measurements, whose scatter nothing explains."""
        own = [value for name, value in self.terms["relative"].items() if not is_measured(str(name))]
        return self.trained and max(own, default=0.0) < _SMALL

    def _of_terms(self) -> Iterator[str]:
        if not len(self.terms):
            return
        wild = [str(name) for name, value in self.terms["relative"].items() if not math.isfinite(float(value))]
        if wild:
            yield f"the residuals of {', '.join(wild)} are not finite: look at their coefficients, or start from smaller "
            "weights"
            return
        largest = float(self.terms["gradient"].max())
        for name, row in self.terms.iterrows():
            scatter = self.trained and is_measured(str(name))
            if not scatter and row["relative"] > _SMALL and row["gradient"] < _UNHEARD * largest:
                yield (
                    f"{name!r} has {row['gradient'] / largest:.0e} of the largest gradient and a residual of "
                    f"{row['relative']:.1e}: "
                    "it is hardly heard; raise its weight, or weights=sciml.Balanced()"
                )
        names = list(self.conflicts.index)
        for place, one in enumerate(names):
            for two in names[place + 1 :]:
                cosine = float(self.conflicts.loc[one, two])
                strong = min(self.terms.loc[[one, two], "gradient"]) > _UNHEARD * largest
                if cosine < _CONFLICT and strong and not self._good:
                    yield (
                        f"{one!r} and {two!r} pull against each other (cosine {cosine:.2f})"
                        + (", as at any compromise" if self.trained else "")
                        + ": exact=True takes conditions out of the struggle, sciml.LeastSquares sees all rows at once"
                    )

    def _of_layers(self) -> Iterator[str]:
        if not len(self.layers):
            return
        varied = self.layers["gradient"].dropna().astype(float)
        largest = float(varied.max()) if len(varied) else 0.0
        for name, value in varied.items():
            if value < _VANISHING * largest:
                yield (
                    f"layer {name} gets {value / largest:.0e} of the largest gradient: it hardly trains; fewer "
                    "layers, or blocks "
                    "with a way around (sciml.ResidualBlock)"
                )
        for name, row in self.layers.iterrows():
            if row["dead"] > _DEAD:
                yield (
                    f"{row['dead']:.0%} of the units of {name} ({row['kind']}) are dead: smaller weights at the "
                    "start, or a smooth "
                    "activation without a flat side"
                )
            elif row["saturated"] > _SATURATED:
                yield (
                    f"{row['saturated']:.0%} of the slopes of {name} ({row['kind']}) are flat: its inputs are too "
                    "large; smaller "
                    "weights before it, or sin"
                )

    def _of_jacobian(self) -> Iterator[str]:
        if not len(self.jacobian) or self._good:
            return
        row = self.jacobian.iloc[0]
        if row["rows"] < row["parameters"]:
            # So few rows leave directions unseen whatever the model is.
            pass
        elif row["rank"] < row["parameters"]:
            yield (
                f"the {row['rows']:.0f} rows looked at see {row['rank']:.0f} of {row['parameters']:.0f} directions "
                "of the parameters, "
                "to double precision: first-order solvers do not move along the others; sciml.LeastSquares or sciml.SSBroyden"
            )
        elif row["condition"] > _ILL:
            yield (
                f"the condition number is {row['condition']:.0e}: Adam needs as many steps as its square root at least; "
                "sciml.LeastSquares or sciml.SSBroyden"
            )
        few = row["rank"] < 0.9 * row["rows"]
        if self.trained and few and row["reachable"] > _REACHABLE:
            yield (
                f"one linear least-squares step would take away {row['reachable']:.0%} of the loss: training ended "
                "early; go on "
                "with fit(..., start=solution, solver=sciml.LeastSquares())"
            )

    def _of_unknowns(self) -> Iterator[str]:
        for name, row in self.unknowns.iterrows():
            # Of a column of random numbers as much is left as there are rows beyond the directions of the model.
            if row["expected"] <= 0:
                continue
            if row["own"] < _OWN * row["expected"]:
                yield (
                    f"the unknown {name!r} is nearly undetermined: a change of the model imitates all but "
                    f"{row['own']:.0e} of what it "
                    "does; measure more, give it a prior, or take it as known"
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

    def _of_artefacts(self) -> Iterator[str]:
        for _, row in self.artefacts.iterrows():
            if row["state"] != "whole":
                yield f"{row['file']} ({row['generation']}) is {row['state']}: {row['advice']}"
