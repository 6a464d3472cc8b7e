"""jinns: self-scaled Broyden or natural gradient, in float64 on the CPU, as its notebooks do."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from . import judging

# Iterations of its notebooks on Burgers' equation, for runs without a limit of time.
ITERATIONS = {"SSBroyden": 1000, "natural gradient": 300}
PROBE = 50


def run(method: str, name: str) -> Callable[[int, float | None], tuple]:
    """A run of a problem with a method."""

    def make(seed: int, seconds: float | None) -> tuple:
        iterations = ITERATIONS[method] if seconds is None else _affordable(method, name, seconds)
        return lambda: _solve(method, name, seed, iterations), lambda values: judging.error_of(name, values)

    make.__doc__ = "4,000 points drawn evenly, 400 on each side, all weights 1."
    return make


def callback_value(params: Any, batch: Any, loss: Any) -> Any:
    """The loss, for a line search: jinns asks that the names of such functions begin like this."""
    return loss.evaluate(params, batch)[0]


def callback_gradient(params: Any, batch: Any, loss: Any) -> Any:
    """The gradient of the loss."""
    return loss.ponderate_and_sum_gradient(loss.values_and_grads(params, batch)[1])


def _affordable(method: str, name: str, seconds: float) -> int:
    """How many iterations some seconds hold beside the compilation, from two short runs that do not count."""
    took = []
    for iterations in (PROBE, 4 * PROBE):
        began = time.perf_counter()
        _solve(method, name, 0, iterations)
        took.append(time.perf_counter() - began)
    each = max((took[1] - took[0]) / (3 * PROBE), 1e-4)
    return max(int((seconds - took[0]) / each) + PROBE, 1)


def _solve(method: str, name: str, seed: int, iterations: int) -> Callable[[np.ndarray], np.ndarray]:
    import jax
    import jinns

    jax.config.update("jax_enable_x64", True)
    network, parameters, data, loss = _setting(name, jax.random.PRNGKey(seed))
    chosen: dict[str, Any] = {"optimizer": jinns.optimizers.vanilla_ngd()}
    if method == "SSBroyden":
        variable = jinns.solver.GetJinnsVariableName
        chosen = {
            "optimizer": jinns.optimizers.scale_by_SSBroyden_family(method="SSBroyden"),
            "extra_optax_args_and_kwargs": {
                "value": variable("train_loss_value"),
                "grad_pt": variable("grads"),
                "value_fn": callback_value,
                "grad_fn": callback_gradient,
                "batch": variable("batch"),
                "loss": variable("loss"),
            },
        }
    found = jinns.solve(n_iter=iterations, init_params=parameters, data=data, loss=loss, verbose=False, **chosen)
    weights = jax.block_until_ready(found[0])

    def values(points: np.ndarray) -> np.ndarray:
        ordered = points[:, ::-1] if name == "burgers" else points  # time comes first
        return np.asarray(jax.vmap(lambda point: network(point, weights))(jax.numpy.asarray(ordered)))

    return values


def _setting(name: str, key: Any) -> tuple:
    import equinox
    import jax
    import jax.numpy as jnp
    import jinns

    of_network, of_points = jax.random.split(key)
    sizes = zip(judging.NETWORK[:-1], judging.NETWORK[1:], strict=True)
    layers = [part for pair in sizes for part in ((equinox.nn.Linear, *pair), (jax.nn.tanh,))][:-1]
    moving = name == "burgers"
    kind = "PDENonStatio" if moving else "PDEStatio"
    network, begun = jinns.nn.PINN_MLP.create(key=of_network, eqx_list=tuple(layers), eq_type=kind)
    parameters = jinns.parameters.Params(nn_params=begun, eq_params={"nu": jnp.array(0.01 / np.pi)})
    if moving:
        data = jinns.data.CubicMeshPDENonStatio(
            key=of_points, n=4000, nb=800, ni=400, dim=1, min_pts=(-1,), max_pts=(1,), tmin=0, tmax=1, method="uniform"
        )
        loss = jinns.loss.LossPDENonStatio(
            u=network,
            loss_weights=jinns.loss.LossWeightsPDENonStatio(dyn_loss=1, initial_condition=1, boundary_loss=1),
            dynamic_loss=jinns.loss.BurgersEquation(Tmax=1),
            boundary_condition=jinns.loss.Dirichlet(),
            initial_condition_fun=lambda x: -jnp.sin(jnp.pi * x),
            params=parameters,
        )
        return network, parameters, data, loss

    class Balance(jinns.loss.PDEStatio):
        def equation(self, x: Any, u: Any, params: Any) -> Any:
            load = 2 * jnp.pi**2 * jnp.sin(jnp.pi * x[0:1]) * jnp.sin(jnp.pi * x[1:2])
            return -jinns.loss.laplacian_rev(x, u, params, eq_type="PDEStatio") - load

    data = jinns.data.CubicMeshPDEStatio(
        key=of_points, n=4000, nb=1600, dim=2, min_pts=(0, 0), max_pts=(1, 1), method="uniform"
    )
    loss = jinns.loss.LossPDEStatio(
        u=network,
        loss_weights=jinns.loss.LossWeightsPDEStatio(dyn_loss=1, boundary_loss=1),
        dynamic_loss=Balance(),
        boundary_condition=jinns.loss.Dirichlet(),
        params=parameters,
    )
    return network, parameters, data, loss
