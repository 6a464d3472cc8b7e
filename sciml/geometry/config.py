"""Domains from their configurations in plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sciml.geometry.ball import Ball, Disk
from sciml.geometry.box import Box
from sciml.geometry.domain import Combination, Domain, Product
from sciml.geometry.polygon import Polygon
from sciml.geometry.polyhedron import Polyhedron

_SHAPES: Mapping[str, Callable[..., Domain]] = {
    "Ball": Ball,
    "Box": lambda bounds: Box(**bounds),
    "Disk": Disk,
    "Polygon": Polygon,
    "Product": lambda parts: Product(*map(domain_from_config, parts)),
    "Solid": Polyhedron,
}


def domain_from_config(config: Mapping[str, Any]) -> Domain:
    """The domain whose ``config`` this is.

    Example:
        >>> import sciml
        >>> domain_from_config(sciml.Disk((0, 0), 2).config)
        Disk((0, 0), 2)
    """
    options = {key: value for key, value in config.items() if key != "kind"}
    kind = config["kind"]
    if kind in ("union", "difference", "intersection"):
        return Combination(kind, *map(domain_from_config, options["parts"]))
    return _SHAPES[kind](**options)
