"""State of points, random generators and parameters as tensors and plain values, and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from sciml.errors import FileError
from sciml.geometry import PointSet
from sciml.problem.collocation import Collocation
from sciml.solvers.journal import Journal
from sciml.solvers.objective import Objective

_PROBES = 7
_UNBUILT = nn.parameter.UninitializedParameter | nn.parameter.UninitializedBuffer


def objective_state(objective: Objective, given: Sequence[Collocation]) -> dict[str, Any]:
    """What was changed of an objective, ``given`` its first blocks: parameters, buffers, weights and redrawn points."""
    blocks = []
    for block, before in zip(objective.blocks, given, strict=True):
        redrawn = {each.name: getattr(block.sample, each.name) for each in fields(PointSet)}
        blocks.append({"sample": None if block.sample is before.sample else redrawn, "weights": block.weights})
    return {
        "vector": objective.vector(),
        "buffers": {name: value.clone() for name, value in objective.rows.trial.named_buffers()},
        "weights": dict(objective.weights),
        "blocks": blocks,
        "portion": objective.rows.portion.size,
    }


def restore_objective(objective: Objective, state: Mapping[str, Any], given: Sequence[Collocation]) -> None:
    """Bring an objective into a state that ``objective_state`` described."""
    objective.assign(state["vector"])
    buffers = dict(objective.rows.trial.named_buffers())
    with torch.no_grad():
        for name, value in state["buffers"].items():
            buffers[name].copy_(value)
    objective.weights = dict(state["weights"])
    blocks = []
    for block, saved in zip(given, state["blocks"], strict=True):
        sample = block.sample if saved["sample"] is None else PointSet(**saved["sample"])
        blocks.append(replace(block, sample=sample, weights=saved["weights"]))
    objective.blocks = tuple(blocks)
    # Sums of parts round otherwise than the whole.
    objective.rows.portion.size = state["portion"]


def generator_state(generator: np.random.Generator) -> dict[str, Any]:
    """Where a generator of random numbers is, and how many others have sprung from it."""
    seeds: Any = generator.bit_generator.seed_seq
    return {
        "state": dict(generator.bit_generator.state),
        "entropy": seeds.entropy,
        "key": list(seeds.spawn_key),
        "children": seeds.n_children_spawned,
    }


def generator_of(state: Mapping[str, Any]) -> np.random.Generator:
    """A generator that goes on where another one was."""
    # Sobol sequences take their scrambling from children, which are numbered.
    seeds = np.random.SeedSequence(state["entropy"], spawn_key=tuple(state["key"]), n_children_spawned=state["children"])
    bits = np.random.PCG64(seeds)
    bits.state = cast(Any, dict(state["state"]))
    return np.random.Generator(bits)


def placed(content: Any, like: Tensor) -> Any:
    """The same content with its floating-point tensors where the computation is; all others stay on the CPU."""
    if isinstance(content, Tensor):
        return content.to(like.device) if content.is_floating_point() else content
    if isinstance(content, Mapping):
        return {key: placed(value, like) for key, value in content.items()}
    if isinstance(content, list | tuple):
        kind = tuple if isinstance(content, tuple) else list
        return kind(placed(value, like) for value in content)
    return content


def as_plain(content: Any, where: str = "") -> Any:
    """The same content as tensors, numbers, texts, lists and dicts, all that files may hold; otherwise a ``FileError``."""
    if content is None or type(content) in (bool, int, float, str):
        return content
    if isinstance(content, Tensor):
        return content.detach()
    if isinstance(content, np.generic):
        return content.item()
    if isinstance(content, str):
        return str.__str__(content)
    if isinstance(content, Mapping):
        return {as_plain(key, where): as_plain(value, f"{where}.{key}") for key, value in content.items()}
    if isinstance(content, list | tuple):
        kind = tuple if isinstance(content, tuple) else list
        return kind(as_plain(value, where) for value in content)
    raise FileError(f"{where.strip('.')} holds an object of class {type(content).__name__}, which cannot be saved")


def settled(journal: Journal, name: str, objective: Objective, work: Callable[[], object]) -> None:
    """Do work that ends with other parameters of an objective, unless the journal holds them."""

    def compute() -> dict[str, Any]:
        work()
        return {"vector": objective.vector()}

    objective.assign(journal.recalled(name, compute)["vector"])


def model_state(model: nn.Module | None) -> dict[str, Any] | None:
    """A model's values as it was handed in; None where these are ours to draw."""
    state = {} if model is None else model.state_dict()
    if not state or any(isinstance(value, _UNBUILT) for value in state.values()):
        return None
    return {
        name: value.detach().cpu().clone() if isinstance(value, Tensor) else as_plain(value, f"model.{name}")
        for name, value in state.items()
    }


def model_as_it_was(model: nn.Module | None, state: dict[str, Any] | None) -> nn.Module | None:
    """A model with the values that it had when the fit began for the first time; a ``FileError`` where it has others."""
    if model is None or state is None:
        return model
    found = copy.deepcopy(model)
    try:
        found.load_state_dict(state)
    except RuntimeError as error:
        raise FileError(f"the model is not the one of the checkpoint: {error}") from error
    return found


def model_values(model: nn.Module | None, state: dict[str, Any] | None, inputs: int) -> Tensor | None:
    """What a model gives at some points, by which it is known again; None where it is ours to build."""
    if model is None or state is None:
        return None
    like = next((value for value in model.parameters() if value.is_floating_point()), torch.zeros(()))
    steps = torch.linspace(-0.9, 0.9, _PROBES, dtype=like.dtype, device=like.device)
    points = torch.stack([steps.roll(place) for place in range(inputs)], dim=1)
    with torch.no_grad():
        try:
            return copy.deepcopy(model).eval()(points).double().cpu()
        except Exception:
            return None
