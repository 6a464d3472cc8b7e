"""Other libraries on problems of the tables; they need not be installed (``pip install -e .[peers]`` pins their versions).

``python -m tests.benchmarks.peers DeepXDE poisson`` prints a record like the worker's: the settings of the peer's own
documentation, to the end. ``python -m tests.benchmarks.peers "jinns, SSBroyden" poisson 0 20`` trains the network of
``NETWORK`` with seed 0 for 20 seconds, everything but the imports counted.
"""

import importlib.util
from collections.abc import Callable, Iterable
from typing import Any

from .. import harness
from . import deepxde, fastlsq, jinns, pina

PACKAGES = {"DeepXDE": "deepxde", "FastLSQ": "fastlsq", "jinns": "jinns", "PINA": "pina-mathlab"}
# How each is imported, where that is not the name of its package.
MODULES = {"pina-mathlab": "pina"}

Solve, Error = Callable[[], Any], Callable[[Any], float]

# By peer and problem: from a seed and the seconds that it may take (None: as its documentation has it), how to solve, and the
# relative error of what came out.
RUNS: dict[tuple[str, str], Callable[[int, float | None], tuple[Solve, Error]]] = {
    ("DeepXDE", "poisson"): deepxde.poisson,
    ("DeepXDE", "burgers"): deepxde.burgers,
    ("FastLSQ", "poisson"): fastlsq.poisson,
    ("FastLSQ", "wave"): fastlsq.wave,
    **{
        (f"jinns, {method}", problem): jinns.run(method, problem)
        for method in ("SSBroyden", "natural gradient")
        for problem in ("poisson", "burgers")
    },
    ("PINA", "poisson"): pina.poisson,
    ("PINA", "burgers"): pina.burgers,
}
# Those that are compared in the table of networks, at equal times and with the same network; the others have no network.
WITH_NETWORKS = tuple(key for key in RUNS if key[0] != "FastLSQ")


def package(peer: str) -> str:
    """The package of a peer, whose name may be followed by a method of it."""
    return PACKAGES[peer.partition(",")[0]]


def installed(peer: str) -> bool:
    """Whether a peer can be run here."""
    name = package(peer)
    return importlib.util.find_spec(MODULES.get(name, name)) is not None


def missing() -> list[str]:
    """A sentence for each peer that is not installed."""
    return [
        f"{peer} is not installed and was not run; pip install {package}"
        for peer, package in PACKAGES.items()
        if not installed(peer)
    ]


def all_of(name: str, limit: float) -> list[dict[str, Any]]:
    """The records of every installed peer that has a run for a benchmark, with the settings of its documentation."""
    return list(_records(name, ["0"], limit))


def at_equal_time(name: str, seed: int, seconds: float) -> list[dict[str, Any]]:
    """The records of every installed peer that trains networks, with the same network and no more than some seconds."""
    found = _records(name, [str(seed), str(seconds)], 10 * seconds + 60)
    return [each for each in found if (each["peer"], name) in WITH_NETWORKS]


def _records(name: str, words: list[str], limit: float) -> Iterable[dict[str, Any]]:
    for (peer, problem), make in RUNS.items():
        if problem == name and installed(peer) and (len(words) == 1 or (peer, problem) in WITH_NETWORKS):
            settings = (make.__doc__ or "").strip().rstrip(".").lower()
            yield {"peer": peer, "settings": settings, **harness.in_process("peers", peer, name, *words, limit=limit)}
