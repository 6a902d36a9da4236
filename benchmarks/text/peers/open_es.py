"""OpenES of evosax on JAX: the library's own ask and tell around our RNN, compiled as one function a step.

Source: https://github.com/RobertTLange/evosax.
"""

from typing import final

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
from evosax.algorithms import Open_ES
from evosax.algorithms.distribution_based.open_es import State
from numpy.typing import NDArray

from benchmarks.text.peers.same_windows import check_one_layer, same_windows
from benchmarks.text.rnn_run import RnnRun


class OpenEsSettings(msgspec.Struct, frozen=True):
    """Antithetic and with centered ranks, as evosax has it; the learning rate falls linearly to 0 over the budget.

    It is the same algorithm as the plain strategy in PyTorch, reaches the same figures, and so has its settings.
    """

    population: int = 128
    windows: int = 16
    """That every member reads in a step."""
    sigma: float = 0.02
    learning_rate: float = 0.01
    members_at_once: int = 32


@final
class OpenEs:
    """The learner; it is compiled before its first step."""

    def __init__(self, run: RnnRun, settings: OpenEsSettings) -> None:
        check_one_layer(run)
        self._run, self._settings = run, settings
        self._layout = run.objective.layout
        weights = jnp.asarray(run.initial_weights())
        self._strategy = Open_ES(
            settings.population,
            weights,
            optimizer=optax.inject_hyperparams(optax.adam)(learning_rate=settings.learning_rate),
            std_schedule=optax.constant_schedule(settings.sigma),
        )
        self._parameters = self._strategy.default_params
        key = jax.random.key(run.config.run.seed)
        self._state = self._strategy.init(key, weights, self._parameters)
        self._number = 0
        self._key = key
        self._take_step = jax.jit(self._step).lower(key, self._state, *self._inputs(), 0.0).compile()

    def advance(self, progress: float) -> int:
        key = jax.random.fold_in(self._key, self._number)
        learning_rate = self._settings.learning_rate * (1 - progress)
        self._state = jax.block_until_ready(self._take_step(key, self._state, *self._inputs(), learning_rate))
        self._number += 1
        return self._settings.population * self._settings.windows * self._run.options.sequence_length

    def weights(self) -> NDArray[np.float32]:
        return np.asarray(self._state.mean)

    def _inputs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        windows = same_windows(self._run, step=self._number, n_windows=self._settings.windows)
        return windows.context, windows.tokens, windows.is_cold

    def _step(
        self,
        key: jax.Array,
        state: State,
        context: jax.Array,
        tokens: jax.Array,
        is_cold: jax.Array,
        learning_rate: jax.Array,
    ) -> State:
        state.opt_state.hyperparams["learning_rate"] = learning_rate
        ask, tell = jax.random.split(key)
        members, state = self._strategy.ask(ask, state, self._parameters)
        own = self._split(state.mean)
        start = jnp.broadcast_to(own["initial_state"], (len(context), own["initial_state"].size))
        warm, _ = _read(own, context, start)

        def loss(weights: jax.Array) -> jax.Array:
            member = self._split(weights)
            begin = jnp.where(is_cold[:, None], member["initial_state"], warm)
            _, states = _read(member, tokens[:, :-1], begin)
            logits = states @ member["head.weight"].T + member["head.bias"]
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:].T).mean()

        found = jax.lax.map(loss, members, batch_size=self._settings.members_at_once)
        state, _ = self._strategy.tell(tell, members, found, state, self._parameters)
        return state

    def _split(self, flat: jax.Array) -> dict[str, jax.Array]:
        return {
            tensor.name: flat[offset : offset + tensor.size].reshape(tensor.shape)
            for tensor, offset in zip(self._layout.tensors, self._layout.offsets, strict=True)
        }


def _read(parameters: dict[str, jax.Array], tokens: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The state [windows, hidden] after `tokens` [windows, T], and those after each, [T, windows, hidden]."""
    inputs = parameters["embedding.weight"][tokens.T] + parameters["rnn.bias_l0"]

    def advance(state: jax.Array, received: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jnp.tanh(received + state @ parameters["rnn.weight_hh_l0"].T)
        return state, state

    last, states = jax.lax.scan(advance, state, inputs)
    return last, states
