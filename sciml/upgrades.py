"""Checkpoints of earlier formats, as the present one has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sciml.callbacks import Look
from sciml.look_log import LookLog

FORMAT = 2
# Format 1 knew neither steps that are taken back nor sums in parts, and held looks one by one.
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
    if "best" not in content:
        return dict(content)
    seen = LookLog()
    for each in content["seen"]:
        seen.append(Look(**each["look"]), each["more"])
    return {**content, "note": None, "seen": seen.state()}


def comparable(content: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fingerprints of a checkpoint and of a fit, without what the checkpoint's format told otherwise or not at all.

    Raises:
        KeyError, TypeError, AttributeError: it is no checkpoint.
    """
    before = dict(content["fingerprint"])
    if content["checkpoint"] > 1:
        return before, dict(now)
    return _without(before), _without(now)


def _without(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    problem = {name: each for name, each in fingerprint["problem"].items() if name != "residuals"}
    versions = {name: each for name, each in fingerprint["versions"].items() if name != "threads"}
    data = fingerprint["data"] and {name: each for name, each in fingerprint["data"].items() if name != "noise"}
    return {
        **{name: each for name, each in fingerprint.items() if name != "code"},
        "problem": problem,
        "data": data,
        "versions": versions,
    }
