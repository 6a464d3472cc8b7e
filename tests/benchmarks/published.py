"""What others found for constants that problems of the gallery leave unknown."""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """Values of unknown constants with their standard errors; zero where the data were made with them."""

    source: str
    values: Mapping[str, tuple[float, float]]


PUBLISHED = {
    "boarding_school_flu": Published(
        "a shooting fit by least squares, in data/README.md",
        {"infection": (1.788, 0.106), "recovery": (0.456, 0.019), "first": (2.09, 0.88)},
    ),
    "burgers_inverse": Published(
        "the constants that the samples were made with", {"speed": (1.0, 0.0), "viscosity": (0.01 / math.pi, 0.0)}
    ),
    "lorenz_inverse": Published(
        "the constants that the samples were made with",
        {"sigma": (10.0, 0.0), "rho": (15.0, 0.0), "beta": (8 / 3, 0.0)},
    ),
    "lynx_hare": Published(
        "B. Carpenter, 2018, with log-normal noise",
        {"birth": (0.55, 0.06), "predation": (0.028, 0.004), "death": (0.80, 0.09), "conversion": (0.024, 0.004)},
    ),
}
