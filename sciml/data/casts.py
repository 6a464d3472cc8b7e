"""Type conversion of columns on request: truth values and dates as numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from sciml._text import listed, mapping, nearest
from sciml.data.units import moment
from sciml.errors import DataError
from sciml.typing import Array

_UNITS = {
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("week", "weeks"), 604800.0),
}
_TRUTH = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "t": 1.0, "f": 0.0}


def check_casts(casts: Mapping[str, str] | None, columns: list[str]) -> dict[str, str]:
    """What was asked for, checked before anything is read."""
    asked = mapping("casts", casts, "{'on': 'bool', 'day': 'days since 2020-01-01'}")
    for name, how in asked.items():
        if name not in columns:
            raise DataError(f"casts names {name!r}, which is not read; columns: {listed(columns)}.{nearest(name, columns)}")
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
    unit, _, date = how.partition(" since ") if isinstance(how, str) else ("", "", "")
    begin = moment(date)
    if unit.strip() not in _UNITS or begin is None:
        raise DataError(f"casts: {name!r} needs 'bool' or a unit and a date, such as 'days since 2020-01-01'; given: {how!r}")
    return _UNITS[unit.strip()], begin
