"""Where a fluid leaves: a channel that ends where its flow goes on."""

import numpy as np
import pytest

import sciml
from sciml import d
from sciml.errors import ProblemError

CHANNEL = sciml.Box(x=(0, 3), y=(0, 1))


class Channel(sciml.Problem):
    """Poiseuille's flow, Navier and Stokes' equations: the pressure falls to zero at the end."""

    domain = CHANNEL
    fields = ["u", "v", "p"]
    nu = 0.1
    conditions = [
        sciml.Dirichlet(u=lambda y: 4 * y * (1 - y), v=0.0, on=CHANNEL.face(x=0) | CHANNEL.faces("y")),
        sciml.Outflow(("u", "v"), "p", viscosity=lambda self: self.nu, on=CHANNEL.face(x=3)),
    ]

    @sciml.equation
    def along(self, u, v, p, x, y):
        return u * d(u, x) + v * d(u, y) + d(p, x) - self.nu * sciml.laplacian(u, x, y)

    @sciml.equation
    def across(self, u, v, p, x, y):
        return u * d(v, x) + v * d(v, y) + d(p, y) - self.nu * sciml.laplacian(v, x, y)

    @sciml.equation
    def continuity(self, u, v, x, y):
        return d(u, x) + d(v, y)

    def reference(self, x, y):
        return {"u": 4 * y * (1 - y), "v": 0 * x, "p": 8 * self.nu * (3 - x)}


def test_a_channel_goes_on():
    solution = sciml.fit(Channel())
    assert solution.success, solution.message
    at = {"x": np.linspace(0, 3, 13), "y": np.linspace(0.1, 0.9, 13)}
    found, exact = solution(**at), Channel().reference_values(at)
    for name in Channel.fields:
        assert np.allclose(found[name], exact[name], rtol=0, atol=1e-8)


def test_what_an_outflow_needs():
    for wrong, words in (
        (sciml.Outflow(("u", "w"), "p", viscosity=1.0, on=CHANNEL.face(x=3)), "Outflow names 'w'"),
        (sciml.Outflow(("u",), "p", viscosity=1.0, on=CHANNEL.face(x=3)), "a velocity for each of 'x', 'y'"),
        (sciml.Outflow(("u", "v"), "p", viscosity="1", on=CHANNEL.face(x=3)), "viscosity"),
    ):
        with pytest.raises(ProblemError, match=words):
            type("Wrong", (Channel,), {"conditions": [wrong]})
