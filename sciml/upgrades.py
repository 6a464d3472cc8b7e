"""Checkpoints of earlier formats, as the present one has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

FORMAT = 2
# Format 1 knew neither steps that are taken back nor sums in parts.
_RETREAT = {"share": 1.0, "why": "", "several": False, "most": 0.0, "lowest": math.inf, "good": None}


def upgraded(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a checkpoint in the present format.

    Raises:
        KeyError, TypeError, AttributeError: it is no checkpoint.
    """
    if content["checkpoint"] != 1:
        return content
    journal = content["journal"]
    entries = [[index, name, cost, _phase(each)] for index, name, cost, each in journal["entries"]]
    live = journal["live"]
    if live is not None:
        index, name, state = live
        solver = {**(_RETREAT if "optimizer" in state["solver"] else {"good": None}), **state["solver"]}
        state = {**_phase(state), "solver": solver, "objective": {**state["objective"], "portion": None}}
        live = [index, name, state]
    return {**content, "checkpoint": FORMAT, "journal": {**journal, "entries": entries, "live": live}}


def _phase(content: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a phase; other pieces of work are as they were."""
    return {**content, "note": None} if "best" in content else dict(content)
