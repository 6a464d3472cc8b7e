"""Waves, fronts and chaos in one space dimension: rows 7 to 10 and 15."""

import math

import torch

import sciml
from sciml import d

from .case import Case, Target, against, on_grid
from .stored import load, problem_class

PI = math.pi


Burgers = problem_class("burgers")
AllenCahn = problem_class("allen_cahn")


class AllenCahnFixed(AllenCahn):
    """DeepXDE's variant: ten times the diffusivity, and -1 at both ends."""

    diffusivity = 1e-3
    conditions = [
        sciml.Initial(u=lambda x: x**2 * torch.cos(PI * x)),
        sciml.Dirichlet(u=-1.0, on=AllenCahn.domain.faces("x")),
    ]
    reference = load("allen_cahn_fixed")


class KortewegDeVries(sciml.Problem):
    """u_t + uu_x + 0.022² u_xxx = 0, periodic, from cos πx (N. J. Zabusky and M. D. Kruskal, 1965)."""

    domain = sciml.Box(x=(-1, 1), t=(0, 1))
    fields = ["u"]
    dispersion = 0.022**2
    conditions = [sciml.Initial(u=lambda x: torch.cos(PI * x)), sciml.Periodic("x")]
    reference = load("korteweg_de_vries")

    @sciml.equation
    def motion(self, u, x, t):
        return d(u, t) + u * d(u, x) + self.dispersion * d(u, x, x, x)


Schroedinger = problem_class("schroedinger")
KuramotoSivashinsky = problem_class("kuramoto_sivashinsky")

CASES = (
    Case(
        "burgers",
        7,
        "Burgers, ν = 0.01/π, −sin πx, t ≤ 1",
        (Target(1e-7, 60), Target(1e-9, 150), Target(1e-11, 300)),
        "jinns SSBroyden 9.3e-4 at 36 s, then rising to 3e-3; PINA 3.5e-3, 112 s; DeepXDE f64 1.3e-2, 146 s; DSGNAR not "
        "converged in 240 s",
        Burgers,
        on_grid(257),
    ),
    Case(
        "allen_cahn_periodic",
        8,
        "Allen-Cahn, u_t = 1e-4 u_xx + 5u − 5u³, x² cos πx, periodic",
        (Target(1e-4, 120), Target(1e-6)),
        "published 2e-6 (hours, GPU), 2e-5 PirateNet",
        AllenCahn,
        against("allen_cahn"),
    ),
    Case(
        "allen_cahn_fixed",
        8,
        "Allen-Cahn, DeepXDE's variant: d = 1e-3, u(±1) = −1",
        (Target(1e-4, 120), Target(1e-6)),
        "jinns SSBroyden 1.1e-4, 100 s; DeepXDE f64 0.45, 120 s",
        AllenCahnFixed,
        against("allen_cahn_fixed"),
    ),
    Case(
        "korteweg_de_vries",
        9,
        "KdV, u_t + u u_x + 0.022² u_xxx = 0, cos πx, periodic",
        (Target(1e-5, 100), Target(1e-8, 300)),
        "published 2e-6 (hours, GPU), 3e-4 SOAP",
        KortewegDeVries,
        against("korteweg_de_vries"),
    ),
    Case(
        "schroedinger",
        10,
        "Schrödinger, i h_t + ½ h_xx + \\|h\\|² h = 0, 2 sech x, t ≤ π/2",
        (Target(1e-5, 120),),
        "published 2e-3 and up",
        Schroedinger,
        against("schroedinger"),
    ),
    Case(
        "kuramoto_sivashinsky",
        15,
        "Kuramoto-Sivashinsky (jaxpi's), t ≤ 1",
        (Target(1e-4, 300),),
        "DSGNAR 5e-7, 87 min (H100)",
        KuramotoSivashinsky,
        against("kuramoto_sivashinsky"),
    ),
)
