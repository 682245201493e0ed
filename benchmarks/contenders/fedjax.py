"""FedJAX: its `federated_averaging` with a network in plain JAX, on XLA's CPU backend.

Set-up:

- FedJAX uses `jax.tree_map`, which newer versions of JAX no longer have; it is put back.
- Images and filters are laid out channels last, which XLA prefers, and turned back for the comparison.
- FedJAX would fill the last batch of an epoch from the next one; a data set of ours ends epochs as all contenders do.
- The first round compiles, which is in its start-up.
"""

import os
import sys

os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": str(int(sys.argv[2] == "float64")),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}

import jax
import jax.numpy as jnp
import numpy as np

jax.tree_map = jax.tree_util.tree_map

import fedjax  # noqa: E402

from .worker import Job, Session, main  # noqa: E402

TO_LAST, TO_FIRST = (2, 3, 1, 0), (3, 2, 0, 1)  # of a filter's axes: (o, i, h, w) to (h, w, i, o), and back


def output(job: Job, params, x):
    """Logits, or predictions of shape (B, 1)."""
    layers = [name.removesuffix(".weight") for name in params if name.endswith("weight")]
    for layer in layers:
        w, b = params[f"{layer}.weight"], params[f"{layer}.bias"]
        if w.ndim == 4:
            padding = [(job.padding, job.padding)] * 2
            x = jax.lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
            window = (1, job.pool, job.pool, 1)
            x = jax.lax.reduce_window(jax.nn.relu(x + b), -jnp.inf, jax.lax.max, window, window, "VALID")
        else:
            x = x.transpose(0, 3, 1, 2).reshape(len(x), -1) if x.ndim == 4 else x
            x = x @ w.T + b
            x = x if layer == layers[-1] else jax.nn.relu(x)
    return x


class Ordered(fedjax.ClientDataset):
    """One client's data, in the drawn order."""

    def __init__(self, examples, batches):
        super().__init__(examples)
        self.batches = batches

    def shuffle_repeat_batch(self, hparams=None, **settings):
        for epoch in self.batches:
            for rows in epoch:
                yield {name: part[rows] for name, part in self.raw_examples.items()}


def turned(arrays, axes):
    """The parameters with the axes of the filters in another order."""
    return {name: p.transpose(axes) if p.ndim == 4 else p for name, p in arrays.items()}


def run(job: Job, session: Session) -> None:
    xs = np.ascontiguousarray(np.moveaxis(job.x, 2, -1)) if job.x.ndim == 5 else job.x

    def loss(params, batch, rng):
        out = output(job, params, batch["x"])
        if job.classes:
            return -jnp.take_along_axis(jax.nn.log_softmax(out), batch["y"][:, None], 1).mean()
        return jnp.square(out[:, 0] - batch["y"]).mean()

    fedavg = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        client_optimizer=fedjax.optimizers.sgd(job.lr),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(job.batch_size, num_epochs=job.epochs),
    )
    state = fedavg.init({name: jnp.asarray(p) for name, p in turned(job.start, TO_LAST).items()})
    while True:
        jax.block_until_ready(state.params)
        t = session.next_round(lambda: turned({n: np.asarray(p) for n, p in state.params.items()}, TO_FIRST))
        cohort = job.cohort(t)
        rngs = jax.random.split(jax.random.PRNGKey(t), len(cohort))
        clients = [
            (k, Ordered({"x": xs[k], "y": job.y[k]}, job.batches(t, k)), rng)
            for k, rng in zip(cohort, rngs, strict=True)
        ]
        state, _ = fedavg.apply(state, clients)


if __name__ == "__main__":
    main(run, "fedjax", "jax")
