"""Domains from their descriptions in plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sciml.geometry.ball import Ball, Disk
from sciml.geometry.box import Box
from sciml.geometry.domain import Combination, Domain, Product
from sciml.geometry.polygon import Polygon
from sciml.geometry.polyhedron import Polyhedron

_SHAPES: Mapping[str, Any] = {"Ball": Ball, "Disk": Disk, "Polygon": Polygon, "Solid": Polyhedron}


def domain_from_config(config: Mapping[str, Any]) -> Domain:
    """The domain whose ``config`` this is.

    Raises:
        KeyError: it is nobody's.

    Example:
        >>> import sciml
        >>> domain_from_config(sciml.Disk((0, 0), 2).config)
        Disk((0, 0), 2)
    """
    options = {key: value for key, value in config.items() if key != "kind"}
    kind = config["kind"]
    if kind == "Box":
        return Box(**{name: (pair[0], pair[1]) for name, pair in options["bounds"].items()})
    if kind == "Product":
        return Product(*map(domain_from_config, options["parts"]))
    if kind in ("union", "difference", "intersection"):
        return Combination(kind, *map(domain_from_config, options["parts"]))
    return _SHAPES[kind](**options)
