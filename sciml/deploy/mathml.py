"""The equations of a problem as MathML, written down by calling them with symbols in the place of numbers."""

from __future__ import annotations

import copy
import html
import inspect
import math
import operator
import textwrap
import weakref
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partialmethod
from typing import Any

from sciml.geometry import Face
from sciml.jets.calculus import SPACE
from sciml.problem import Problem
from sciml.problem.conditions import Targets
from sciml.problem.functions import argument_names, evaluated

_SUM, _PRODUCT, _ATOM = range(3)
_FUNCTIONS = (
    *("sin", "cos", "tan", "exp", "log", "tanh", "sinh", "cosh", "atan", "asin", "acos", "erf", "sigmoid", "relu", "sign"),
    *("maximum", "minimum"),
)
_RELATIONS = {"__lt__": "<", "__le__": "≤", "__gt__": ">", "__ge__": "≥", "__and__": "and", "__or__": "or"}
_GREEK = {
    **{"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "theta": "θ", "kappa": "κ", "lambda": "λ"},
    **{"mu": "μ", "nu": "ν", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "omega": "ω"},
}


def _identifier(name: str) -> str:
    """A name: ``nu`` is a letter, ``k_0`` has an index."""
    head, _, tail = name.partition("_")
    letter = f"<mi>{html.escape(_GREEK.get(head, head))}</mi>"
    return f"<msub>{letter}<mi>{html.escape(tail)}</mi></msub>" if tail else letter


def _number(value: float) -> str:
    """A number; simple multiples of π as such."""
    share = Fraction(value / math.pi).limit_denominator(12) if value and math.isfinite(value) else Fraction(0)
    if share and abs(value - math.pi * share) <= 1e-12 * abs(value) and abs(share.numerator) <= 100:
        top = "" if abs(share.numerator) == 1 else f"<mn>{abs(share.numerator)}</mn>"
        pi = f"<mrow>{top}<mi>π</mi></mrow>"
        pi = pi if share.denominator == 1 else f"<mfrac>{pi}<mn>{share.denominator}</mn></mfrac>"
        return pi if share > 0 else f"<mrow><mo>−</mo>{pi}</mrow>"
    text = f"{value:.6g}"
    mantissa, _, exponent = text.partition("e")
    found = f"<mn>{mantissa.removeprefix('-')}</mn>"
    if exponent:
        found = f"<mrow>{found}<mo>·</mo><msup><mn>10</mn><mn>{int(exponent)}</mn></msup></mrow>"
    return found if not mantissa.startswith("-") else f"<mrow><mo>−</mo>{found}</mrow>"


class Symbol:
    """An expression as MathML: what arithmetic and functions of torch make of symbols are symbols."""

    def __init__(self, math: str, level: int = _ATOM, field: str | None = None) -> None:
        self.math, self.level, self.field = math, level, field

    @classmethod
    def of(cls, value: Any) -> Symbol:
        """A symbol as it is, a number as its text."""
        if isinstance(value, Symbol):
            return value
        number = float(value)
        return cls(_number(number), _SUM if number < 0 else _ATOM)

    def within(self, level: int) -> str:
        """In brackets where what is around binds more strongly."""
        return self.math if self.level >= level else f"<mrow><mo>(</mo>{self.math}<mo>)</mo></mrow>"

    def _joined(self, other: Any, *, sign: str, level: int, turned: bool = False) -> Symbol:
        if sign in ("+", "−") and isinstance(other, int | float) and other == 0:
            return -self if sign == "−" and turned else self
        first, second = (Symbol.of(other), self) if turned else (self, Symbol.of(other))
        if sign == "·" and first.math == "<mn>1</mn>":
            return second
        # What follows a minus, or is divided by, is bracketed where it is a sum itself.
        behind = second.within(level + 1 if sign == "−" or (level == _SUM and second.math.startswith("<mrow><mo>−")) else level)
        return Symbol(f"<mrow>{first.within(level)}<mo>{sign}</mo>{behind}</mrow>", level)

    def equals(self, other: Any) -> str:
        """An equation with this on its left."""
        return f'<math display="block"><mrow>{self.math}<mo>=</mo>{Symbol.of(other).math}</mrow></math>'

    __add__ = partialmethod(_joined, sign="+", level=_SUM)
    __radd__ = partialmethod(_joined, sign="+", level=_SUM, turned=True)
    __sub__ = partialmethod(_joined, sign="−", level=_SUM)
    __rsub__ = partialmethod(_joined, sign="−", level=_SUM, turned=True)
    __mul__ = partialmethod(_joined, sign="·", level=_PRODUCT)
    __rmul__ = partialmethod(_joined, sign="·", level=_PRODUCT, turned=True)

    def __truediv__(self, other: Any) -> Symbol:
        return Symbol(f"<mfrac>{self.math}{Symbol.of(other).math}</mfrac>", _PRODUCT)

    def __rtruediv__(self, other: Any) -> Symbol:
        return Symbol(f"<mfrac>{Symbol.of(other).math}{self.math}</mfrac>", _PRODUCT)

    def __pow__(self, other: Any) -> Symbol:
        # A power of a derivative is that of a fraction.
        base = self.math if self.level == _ATOM and not self.math.startswith(("<mfrac", "<mrow><mfrac")) else ""
        base = base or f"<mrow><mo>(</mo>{self.math}<mo>)</mo></mrow>"
        return Symbol(f"<msup>{base}{Symbol.of(other).math}</msup>")

    def __rpow__(self, other: Any) -> Symbol:
        return Symbol(f"<msup>{Symbol.of(other).within(_ATOM)}{self.math}</msup>")

    def __neg__(self) -> Symbol:
        return Symbol(f"<mrow><mo>−</mo>{self.within(_PRODUCT)}</mrow>", _SUM)

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return Symbol(f"<mrow><mo>|</mo>{self.math}<mo>|</mo></mrow>")

    def __getattr__(self, name: str) -> Any:
        known = _known(name)
        if known is None or name.startswith("_"):
            raise AttributeError(name)
        return lambda *given: known(self, *given)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Functions of torch, by their names."""
        known = _known(function.__name__)
        if known is None:
            raise TypeError(f"{function.__name__} is not known")
        return known(*args)


for _name, _sign in _RELATIONS.items():
    setattr(Symbol, _name, partialmethod(Symbol._joined, sign=html.escape(_sign), level=_SUM))


def _known(name: str) -> Callable[..., Any] | None:
    """What a function of torch means here."""
    if name in _FUNCTIONS:
        return lambda *given: Symbol(
            f"<mrow><mi>{name}</mi><mo>(</mo>{'<mo>,</mo>'.join(Symbol.of(each).math for each in given)}<mo>)</mo></mrow>"
        )
    meanings: dict[str, Callable[..., Any]] = {
        "sqrt": lambda given: Symbol(f"<msqrt>{given.math}</msqrt>"),
        **{each: getattr(operator, each) for each in ("abs", "add", "mul", "pow", "sub")},
        "div": operator.truediv,
        "square": lambda given: given**2,
        "zeros_like": lambda given: 0.0,
        "ones_like": lambda given: 1.0,
        "detach": lambda given: given,
        "where": lambda condition, yes, no: Symbol(
            f"<mrow><mo>{{</mo><mtable><mtr><mtd>{Symbol.of(yes).math}</mtd><mtd><mtext>where </mtext>{condition.math}</mtd>"
            f"</mtr><mtr><mtd>{Symbol.of(no).math}</mtd><mtd><mtext>elsewhere</mtext></mtd></mtr></mtable></mrow>"
        ),
    }
    return meanings.get(name)


class _Space:
    """What ``d`` asks for derivatives."""

    def derivative(self, expression: Any, names: Sequence[str]) -> Any:
        if not isinstance(expression, Symbol):
            return 0.0
        order = len(names)
        top = "<mo>∂</mo>" if order == 1 else f"<msup><mo>∂</mo><mn>{order}</mn></msup>"
        bottom = ""
        for name in dict.fromkeys(names):
            times = names.count(name)
            by = f"<mrow><mo>∂</mo>{_identifier(name)}</mrow>"
            bottom += by if times == 1 else f"<msup>{by}<mn>{times}</mn></msup>"
        if expression.field is not None:
            return Symbol(f"<mfrac><mrow>{top}{expression.math}</mrow><mrow>{bottom}</mrow></mfrac>")
        operator = f"<mfrac><mrow>{top}</mrow><mrow>{bottom}</mrow></mfrac>"
        return Symbol(f"<mrow>{operator}<mo>(</mo>{expression.math}<mo>)</mo></mrow>", _PRODUCT)


def equations(problem: Problem) -> list[tuple[str, str]]:
    """The equations and conditions of a problem, by name, as HTML: MathML, or the source where they cannot be written so.

    Constants appear under their names. An equation that is more than arithmetic, known functions and ``d`` of its arguments,
    as one with a loop over values, is shown as its source.
    """
    space = _Space()
    written = copy.copy(problem)
    written.__dict__.update({name: Symbol(_identifier(name)) for name in problem.constants})
    symbols: dict[str, Any] = {name: Symbol(_identifier(name), field=name) for name in problem.fields}
    for name in problem.coordinates:
        symbols[name] = Symbol(_identifier(name))
        object.__setattr__(symbols[name], SPACE, (weakref.ref(space), name))
    symbols |= {name: tuple(symbols[part] for part in parts) for name, parts in problem.vectors.items()}
    symbols |= {name: Symbol(_identifier(name), field=name) for name in problem.complex_fields}
    found = [(name, _equation(written, name, symbols)) for name in problem._equations]
    for condition in problem.conditions:
        found += _condition(condition, written, symbols)
    return found


def _equation(written: Problem, name: str, symbols: dict[str, Any]) -> str:
    method = getattr(written, name)
    try:
        result = method(*(symbols[each] for each in written._equations[name]))
        parts = result if isinstance(result, tuple | list) else [result]
        return "".join(Symbol.of(part).equals(0) for part in parts)
    except Exception:
        # Equations are any Python; whatever cannot be written down is shown as it is.
        return _source(method)


def _condition(condition: Any, written: Problem, symbols: dict[str, Any]) -> list[tuple[str, str]]:
    kind, where = type(condition).__name__, _place(condition, written)
    if not isinstance(condition, Targets):
        return [(kind, f"<p>{where or html.escape(condition.name)}</p>")]
    found = []
    for key, target in condition.targets.items():
        head = _identifier(key)
        if kind in ("Neumann", "Robin"):
            head = f"<mfrac><mrow><mo>∂</mo>{head}</mrow><mrow><mo>∂</mo><mi>n</mi></mrow></mfrac>"
        try:
            given = {name: symbols[name] for name in argument_names(target)} if callable(target) else {}
            value = evaluated(key, target, given, written) if callable(target) else target
            shown = Symbol(head).equals(value)
        except Exception:
            shown = f'<math display="block">{head}</math>' + _source(target)
        found.append((f"{kind}, {html.escape(key)}", shown + (f"<p>{where}</p>" if where else "")))
    return found


def _place(condition: Any, problem: Problem) -> str:
    """Where a condition holds, in words."""
    time = str(problem.time)
    if type(condition).__name__ == "Initial" and time in problem.domain.bounds:
        return f"at {time} = {problem.domain.bounds[time][0]:g}"
    on = getattr(condition, "on", None)
    if getattr(on, "boundary", False):
        return "on the boundary"
    faces = []
    for face in getattr(on, "faces", ()):
        if isinstance(face, Face):
            faces.append(f"{face.coordinate} = {problem.domain.bounds[face.coordinate][face.side == 'upper']:g}")
        else:
            faces.append(str(getattr(face, "name", face)))
    return html.escape(f"on {', '.join(faces)}") if faces else ""


def _source(function: Any) -> str:
    try:
        return f"<pre>{html.escape(textwrap.dedent(inspect.getsource(function)))}</pre>"
    except (OSError, TypeError):
        return "<p>a function whose source is not known</p>"
