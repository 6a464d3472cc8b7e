"""Conversion of columns: from the unit in a file to that in a problem; truth values and dates to numbers on request."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from sciml._text import among, extra, mapping
from sciml.errors import DataError
from sciml.typing import Array

Units: TypeAlias = Mapping[str, str | tuple[str, str]]

"""For some columns the unit in the problem, or the pair (unit in the file, unit in the problem)."""

_SINCE = " since "
_SECONDS = {
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("week", "weeks"), 604800.0),
}
_TRUTH = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "t": 1.0, "f": 0.0}


def conversion(name: str, theirs: str, ours: str) -> tuple[float, float]:
    r"""The factor :math:`a` and the offset :math:`b` of :math:`y = a x + b` from the unit in a file to that in the problem.

    Of "days since 2020-01-01" the part before "since" is a unit, the rest the moment of zero. Where both name one, :math:`b`
    holds the time between them.
    """
    begin, wanted = (unit.partition(_SINCE)[2].strip() for unit in (theirs, ours))
    if wanted and wanted != begin:
        if not begin:
            raise DataError(
                f"column {name!r}: {ours!r} counts from {wanted!r}, and {theirs!r} does not say from when it counts; give its "
                f"unit as '{theirs} since <date>', or leave the date out"
            )
        later = (_moment(name, begin) - _moment(name, wanted)).total_seconds()
        factor, _ = conversion(name, theirs.partition(_SINCE)[0], ours.partition(_SINCE)[0])
        return factor, later / conversion(name, ours.partition(_SINCE)[0], "s")[0]
    theirs, ours = (unit.partition(_SINCE)[0].strip() for unit in (theirs, ours))
    if theirs == ours:
        return 1.0, 0.0
    with extra("units", f"{name!r}: {theirs!r} to {ours!r} needs pint"):
        import pint
    registry = pint.application_registry.get()
    try:
        source, target = _parsed(registry, theirs), _parsed(registry, ours)
        at_zero, at_one, at_two = (float(registry.Quantity(value, source).to(target).magnitude) for value in (0.0, 1.0, 2.0))
    except pint.DimensionalityError as error:
        raise DataError(
            f"column {name!r}: {theirs!r} cannot be converted to {ours!r}: {error.dim1} is not {error.dim2}; correct units="
        ) from error
    except (pint.UndefinedUnitError, pint.errors.DefinitionSyntaxError, TypeError, ValueError, AssertionError) as error:
        raise DataError(
            f"column {name!r}: pint does not know the unit {theirs!r} or {ours!r}: {error}; correct units="
        ) from error
    if abs((at_two - at_zero) - 2 * (at_one - at_zero)) > 1e-9 * max(abs(at_one), abs(at_two)):
        raise DataError(f"column {name!r}: {theirs!r} to {ours!r} is no factor and offset; convert it before")
    if not at_zero:
        return _clean(at_one, 1e-15 * abs(at_one)), 0.0
    return _clean(at_one - at_zero, 1e-12), _clean(at_zero, 1e-12)


def check_units(
    units: Units | None, columns: Mapping[str, Any] | list[str] | tuple[str, ...]
) -> dict[str, tuple[str | None, str]]:
    """What was asked for, by column: the unit in the file, None if the file is to say, and the unit in the problem."""
    asked: dict[str, tuple[str | None, str]] = {}
    for name, value in mapping("units", units, "{'x': ('cm', 'm')}").items():
        pair = (None, value) if isinstance(value, str) else tuple(value) if isinstance(value, tuple | list) else ()
        if len(pair) != 2 or not isinstance(pair[1], str) or not isinstance(pair[0], str | None):
            raise DataError(f"units: {name!r} needs 'm' or ('cm', 'm'), of file and problem; given: {value!r}")
        if name not in columns:
            raise DataError(f"units names {name!r}, which is no column; columns: {among(name, list(columns))}")
        asked[name] = (pair[0], pair[1])
    return asked


def conversions(
    source: str, units: Units | None, columns: tuple[str, ...], stated: Mapping[str, str]
) -> tuple[dict[str, tuple[float, float]], dict[str, str]]:
    """Factors and offsets of the columns to convert, and all units that are known afterwards; ``stated`` are the file's."""
    found, after = {}, dict(stated)
    for name, (theirs, ours) in check_units(units, columns).items():
        theirs = stated.get(name) if theirs is None else theirs
        if theirs is None:
            raise DataError(
                f"{source}: the file does not say in which unit {name!r} is; pass units={{{name!r}: ('<its unit>', {ours!r})}}"
            )
        found[name] = conversion(name, theirs, ours)
        since = theirs.partition(_SINCE)[2]
        after[name] = ours + (f"{_SINCE}{since}" if since and _SINCE not in ours else "")
    return found, after


def moment(text: str) -> pd.Timestamp | None:
    """A date and time in UTC; None for a text that is none."""
    try:
        found: Any = pd.Timestamp(text) if text else pd.NaT
    except (ValueError, OverflowError):
        return None
    if found is pd.NaT:
        return None
    return found.tz_localize("UTC") if found.tz is None else found.tz_convert("UTC")


def _moment(name: str, text: str) -> pd.Timestamp:
    """The moment that a unit counts from, in UTC."""
    found = moment(text)
    # Before 1583 calendars differ in what a date is.
    if found is None or found.year < 1583:
        raise DataError(
            f"column {name!r}: {text!r} is no date from 1583 on, such as 2020-01-31 or 2020-01-31T12:00:00, and cannot be "
            "changed for another; leave the date out of the problem's unit"
        )
    return found


def _parsed(registry: Any, unit: str) -> Any:
    """A unit as pint writes it, or as the conventions of NetCDF do: ``W m-2``."""
    try:
        return registry.Unit(unit)
    except Exception:
        powers = re.sub(r"(?<=[A-Za-z])(-?\d+)", r"**\1", unit.strip())
        rewritten = re.sub(r"\s+", "*", powers)
        if rewritten == unit:
            raise
        return registry.Unit(rewritten)


def _clean(value: float, slack: float) -> float:
    """A number without the rounding of pint's arithmetic, where a simple fraction is that near."""
    simple = Fraction(value).limit_denominator(100_000)
    return float(simple) if abs(float(simple) - value) <= slack else value


def check_casts(casts: Mapping[str, str] | None, columns: list[str]) -> dict[str, str]:
    """What was asked for, checked before anything is read."""
    asked = mapping("casts", casts, "{'on': 'bool', 'day': 'days since 2020-01-01'}")
    for name, how in asked.items():
        if name not in columns:
            raise DataError(f"casts names {name!r}, which is not read; columns: {among(name, columns)}")
        if how != "bool":
            _epoch(name, how)
    return asked


def cast(source: str, name: str, values: pd.Series, how: str, where: Callable[[int], str]) -> Array:
    """A column as float64: 1 and 0 for truth values, or the time since a date."""
    absent = values.isna().to_numpy(dtype=bool)
    if how == "bool":
        texts = values.astype("string").str.strip().str.lower()
        numbers = texts.map(_TRUTH).astype("float64").to_numpy(dtype=np.float64, na_value=np.nan)
        what = "a truth value (true or false, yes or no)"
    else:
        factor, epoch = _epoch(name, how)
        try:
            moments = pd.to_datetime(values, format="ISO8601", utc=True, errors="coerce")
        except (ValueError, TypeError) as error:
            raise DataError(f"{source}: column {name!r} holds no dates: {error}") from error
        numbers = ((moments - epoch) / pd.Timedelta(seconds=1)).to_numpy(dtype=np.float64) / factor
        what = "a date such as 2020-01-31 or 2020-01-31T12:00:00"
    wrong = np.isnan(numbers) & ~absent
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(f"{source}, {where(row)}: {values.iloc[row]!r} in column {name!r} is not {what}")
    return numbers


def _epoch(name: str, how: str) -> tuple[float, pd.Timestamp]:
    unit, _, date = how.partition(_SINCE) if isinstance(how, str) else ("", "", "")
    begin = moment(date)
    if unit.strip() not in _SECONDS or begin is None:
        raise DataError(f"casts: {name!r} needs 'bool' or a unit and a date, such as 'days since 2020-01-01'; given: {how!r}")
    return _SECONDS[unit.strip()], begin
