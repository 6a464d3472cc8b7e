"""Six problems solved automatically, by a network, and by SciPy, in one run: ``python -m tests.benchmarks.three_ways``.

Prints the table of README.md; with ``--write`` it takes its place there.
"""

import re
import sys
import time
from pathlib import Path

import torch

import sciml

README = Path(__file__).parent.parent.parent / "README.md"
NETWORK = (20, 20, 20)
TRUTH = {"sigma": 10.0, "rho": 15.0, "beta": 8 / 3}
ROWS = {
    "harmonic_oscillator": "harmonic oscillator",
    "heat_rod": "heat in a rod",
    "poisson_square": "Poisson on the square",
    "kovasznay": "Kovasznay's flow, Re 40",
    "burgers": "Burgers' shock, ν = 0.01/π",
    "lorenz_inverse": "Lorenz, three unknown constants",
}


def measured(problem, solve):
    """Error of the worst field, or of the worst unknown, and seconds, of one way to solve a problem."""
    begin = time.perf_counter()
    try:
        solution = solve(problem)
    except sciml.errors.SciMLError as error:
        return f"refused: {error}"
    seconds = time.perf_counter() - begin
    truth = TRUTH if type(problem).__name__ == "LorenzInverse" else None
    errors = (
        [abs(solution.unknowns["estimate"][name] / value - 1) for name, value in truth.items()]
        if truth
        else solution.error().values()
    )
    doubt = "" if solution.success else ", no success"
    return f"{max(errors):.0e} in {seconds:.2g} s{doubt}"


def table():
    """The rows, in Markdown."""
    ways = {
        "`fit(problem)`": sciml.fit,
        f"`fit(problem, MLP{NETWORK})`": lambda problem: sciml.fit(problem, sciml.MLP(*NETWORK)),
        "`baseline(problem)`, SciPy": sciml.baseline,
    }
    lines = ["| problem | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for name, title in ROWS.items():
        figures = [measured(sciml.gallery.problem(name), solve) for solve in ways.values()]
        lines.append(f"| {title} | " + " | ".join(figures) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = table()
    if "--write" in sys.argv:
        text = README.read_text()
        README.write_text(re.sub(r"(?<=## Measured\n\n).*?(?=\n\n[^|])", lambda _: found, text, flags=re.DOTALL))
