"""The problem as its conditions, measurements and constants see it: a protocol, so that they do not import ``Problem``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sciml.geometry import Domain
from sciml.problem.composite_fields import Composites
from sciml.problem.unknowns import Unknown


class ProblemLike(Protocol):
    """The attributes of ``Problem`` that are used before the class is defined; they are documented there."""

    domain: Domain
    fields: Sequence[str]
    time: str | None

    @property
    def coordinates(self) -> tuple[str, ...]: ...
    @property
    def promoted(self) -> tuple[str, ...]: ...
    @property
    def composites(self) -> Composites: ...
    @property
    def constants(self) -> dict[str, Any]: ...
    @property
    def unknowns(self) -> dict[str, Unknown]: ...
    def bind(self, **values: object) -> Any: ...
    def order(self, field: str, coordinate: str) -> int: ...
    def terms(self) -> tuple[Any, ...]: ...
    def bind_initial(self) -> Any: ...
    def equation_residuals(self) -> Any: ...
    def parts_of(
        self, name: str, names: Sequence[str], value: Callable[[Any], object]
    ) -> dict[str, Callable[[Any], Any]]: ...
