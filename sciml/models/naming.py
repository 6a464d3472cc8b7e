"""Parts of a model by name."""

from __future__ import annotations

from fnmatch import fnmatchcase

from torch import Tensor, nn

from sciml.errors import ModelError, listed, nearest


def parts_of(model: nn.Module) -> dict[str, list[Tensor]]:
    """The parameters in every module inside a model, and every parameter alone, by the names that torch gives them."""
    found = {name: list(module.parameters()) for name, module in model.named_modules() if name}
    return found | {name: [parameter] for name, parameter in model.named_parameters()}


def part(model: nn.Module, pattern: str, what: str, others: tuple[str, ...] = ()) -> list[Tensor]:
    """The parameters of all parts whose names match a pattern such as ``layers.*``.

    Args:
        model: the model.
        pattern: a name of ``model.named_modules()`` or ``model.named_parameters()``, with wildcards as in a shell.
        what: the argument that the pattern was given to, for the message.
        others: further names that the argument takes, for the message.

    Raises:
        ModelError: nothing has such a name.
    """
    parts = parts_of(model)
    matching = [name for name in parts if fnmatchcase(name, pattern)]
    if not matching:
        known = [*parts, *others]
        raise ModelError(
            f"{what}: no part of the {type(model).__name__} is called {pattern!r}; parts: {listed(known)}."
            f"{nearest(pattern, known)}"
        )
    return list({id(parameter): parameter for name in matching for parameter in parts[name]}.values())
