"""Complex and vector fields: real fields that have a name together."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml._text import among, listed, nearest
from sciml.errors import ProblemError
from sciml.jets import JetSpace

NORMAL = "normal"


@dataclass(frozen=True)
class Composites:
    """Complex fields, ``{"h": ("u", "v")}`` for h = u + iv, and vectors, whose components are fields or complex fields."""

    complexes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    vectors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all of them."""
        return (*self.complexes, *self.vectors)

    def parts(self, name: str) -> tuple[str, ...]:
        """The fields that a name stands for."""
        if name in self.complexes:
            return self.complexes[name]
        return tuple(part for each in self.vectors.get(name, ()) for part in self.parts(each)) or (name,)

    def has_complex(self, names: Iterable[str]) -> bool:
        """True if a residual with these arguments receives complex numbers."""
        return any(name in self.complexes or self.has_complex(self.vectors.get(name, ())) for name in names)

    def arguments(self, space: JetSpace, names: Sequence[str], normals: Tensor | None = None) -> dict[str, Any]:
        """The arguments of a residual function by name: tensors of shape ``(n,)``, or tuples of them."""
        found: dict[str, Any] = {}
        for name in names:
            if name == NORMAL and normals is not None and name not in (*space.fields, *space.coordinates, *self.names):
                found[name] = normals.unbind(1)
            elif name in self.complexes:
                found[name] = space.paired(*self.complexes[name])
            elif name in self.vectors:
                found[name] = tuple(self.arguments(space, self.vectors[name]).values())
            else:
                found |= space.named([name])
        return found

    def targets(self, owner: str, targets: Mapping[str, Any], time: str | None) -> dict[str, Any]:
        """The targets of a condition by field: those of a complex field ``h_t`` become ``u_t`` and ``v_t``."""
        found: dict[str, Any] = {}
        for key, whole in targets.items():
            name, suffix = self._split(key, time)
            parts = self._targets(f"{owner}({key}=...)", name, whole)
            found |= {f"{part}{suffix}": target for part, target in parts.items()}
        return found

    def joined(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the complex fields, from those of their parts: arrays or tensors."""
        found = {}
        for name, (real, imaginary) in self.complexes.items():
            one, two = values[real], values[imaginary]
            found[name] = torch.complex(one, two) if isinstance(one, Tensor) else np.asarray(one) + 1j * np.asarray(two)
        return found

    def separated(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values by field, from a mapping that may give complex fields instead of their parts."""
        found = dict(values)
        for name, pair in self.complexes.items():
            if name in found:
                whole = found.pop(name)
                found |= {pair[0]: whole.real, pair[1]: _imaginary(whole)}
        return found

    def stacked(self, values: Any, fields: Sequence[str], points: Tensor) -> Tensor:
        """Values by field, or complex field, one a point, as one tensor ``(n, F)``."""
        if isinstance(values, Tensor) and len(fields) == 1:
            values = {fields[0]: values}
        if isinstance(values, Tensor) and [sorted(fields)] == [sorted(pair) for pair in self.complexes.values()]:
            values = dict.fromkeys(self.complexes, values)
        if isinstance(values, Mapping):
            values = self.separated(values)
        if not isinstance(values, Mapping) or set(values) != set(fields):
            given = listed(values) if isinstance(values, Mapping) else type(values).__name__
            raise ProblemError(f"expected a dict with the fields {listed(fields)}; given: {given}")
        columns = [torch.as_tensor(values[name], dtype=points.dtype) for name in fields]
        for name, column in zip(fields, columns, strict=True):
            if column.shape not in ((), (len(points),)):
                raise ProblemError(
                    f"the values of {name!r} have shape {tuple(column.shape)} at {len(points)} points; expected "
                    f"({len(points)},)"
                )
        return torch.stack([column.expand(len(points)) for column in columns], dim=1)

    def _split(self, key: str, time: str | None) -> tuple[str, str]:
        """The name in a target's key, and the rest: ``h_t`` is h, _t."""
        for name in self.names:
            match = re.fullmatch(re.escape(name) + f"((?:_(?:{re.escape(str(time))})+)?)", key)
            if match:
                return name, match.group(1)
        return key, ""

    def _targets(self, what: str, name: str, target: Any) -> dict[str, Any]:
        if name in self.complexes:
            if not callable(target) and not isinstance(target, int | float | complex | Tensor):
                return dict.fromkeys(self.complexes[name], target)
            return dict(zip(self.complexes[name], real_and_imaginary(target), strict=True))
        if name not in self.vectors:
            return {name: target}
        parts = self.vectors[name]
        if not callable(target) and not (isinstance(target, tuple | list) and len(target) == len(parts)):
            raise ProblemError(
                f"the target of {what} must have a value for each of {listed(parts)}, as in "
                f"({', '.join(['0.0'] * len(parts))}), or be a function that returns so many; given: {target!r}"
            )
        found: dict[str, Any] = {}
        for number, part in enumerate(parts):
            own = _after(target, _component(what, number, parts)) if callable(target) else target[number]
            found |= self._targets(what, part, own)
        return found


def real_and_imaginary(target: Any) -> tuple[Any, Any]:
    """The targets of both parts of a complex field: a number's parts, or functions that return those of what one returns."""
    takes: tuple[Callable[[Any], Any], ...] = (attrgetter("real"), _imaginary)
    real, imaginary = (_after(target, take) if callable(target) else take(target) for take in takes)
    return real, imaginary


def checked(owner: str, complexes: Any, vectors: Any, fields: Sequence[str], coordinates: Sequence[str]) -> Composites:
    """The composites of a problem class; refuses wrong shapes, taken names, and parts that are unknown or given twice."""
    for what, given, example in (
        ("complex_fields", complexes, '{"h": ("u", "v")}'),
        ("vectors", vectors, '{"velocity": ("u", "v")}'),
    ):
        sound = isinstance(given, Mapping) and all(
            isinstance(name, str)
            and name.isidentifier()
            and isinstance(parts, tuple | list)
            and (len(parts) == 2 if what == "complex_fields" else len(parts) >= 1)
            for name, parts in given.items()
        )
        if not sound:
            raise ProblemError(f"{owner}: {what} must be names of fields under a name, as in {example}; given: {given!r}")
    for name in (*complexes, *vectors):
        if name in fields or name in coordinates or (name in complexes and name in vectors):
            raise ProblemError(
                f"{owner}: the name {name!r} is taken; fields: {listed(fields)}; coordinates: {listed(coordinates)}; a "
                "complex field or a vector needs a name of its own"
            )
    owners: dict[str, str] = {}
    for name, part in ((name, part) for name, parts in complexes.items() for part in parts):
        if part not in fields:
            raise ProblemError(
                f"{owner}: complex_fields: {name!r} has the part {part!r}, which is no field; fields: {among(part, fields)}"
            )
        if part in owners:
            raise ProblemError(
                f"{owner}: complex_fields: {part!r} is a part of {owners[part]!r} and of {name!r}; every field is a part "
                "of one complex field at most, and once"
            )
        owners[part] = name
    known = (*fields, *complexes)
    for name, parts in vectors.items():
        for part in parts:
            if part not in known or list(parts).count(part) > 1:
                wrong = "is given twice" if part in known else f"is no field.{nearest(str(part), known)}"
                raise ProblemError(f"{owner}: vectors: the component {part!r} of {name!r} {wrong}; fields: {listed(known)}")
    pairs = {name: (parts[0], parts[1]) for name, parts in complexes.items()}
    return Composites(pairs, {name: tuple(parts) for name, parts in vectors.items()})


def _imaginary(value: Any) -> Any:
    # Real tensors, unlike real arrays and numbers, have no imaginary part.
    return torch.zeros_like(value) if isinstance(value, Tensor) and not value.is_complex() else value.imag


def _component(what: str, number: int, parts: Sequence[str]) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if not isinstance(value, tuple | list) or len(value) != len(parts):
            raise ProblemError(
                f"the target function of {what} must return {len(parts)} values, for {listed(parts)}; it returned {value!r}"
            )
        return value[number]

    return take


def _after(target: Callable[..., Any], take: Callable[[Any], Any]) -> Callable[..., Any]:
    """The composition of ``take`` and a function, with the function's own arguments."""

    @functools.wraps(target)
    def taken(**arguments: Any) -> Any:
        return take(target(**arguments))

    return taken
