"""Noise on activations in plain numpy: member by member and token by token."""

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import ParameterLayout
from fedlearn.tasks.rnn.layout import control_tensors, rnn_layout

Array = NDArray[np.float64]
SEED, STEP = 77, 5
FIRST_GROUP = 2**34


class Case(NamedTuple):
    """A network with control matrices, its text, and how it is perturbed."""

    shape: tuple[int, int, int]
    layout: ParameterLayout
    weights: NDArray[np.float32]
    tokens: NDArray[np.uint16]
    context: int
    is_cold: NDArray[np.uint8]
    group_size: int
    control_variates: bool
    sigma: float
    logit_sigma: float
    discount: float
    correction: float
    reset_token: int = -1


def case(
    vocab: int,
    hidden: int,
    layers: int,
    *,
    group_size: int = 4,
    n_groups: int = 3,
    batch_size: int = 1,
    context: int = 3,
    scored: int = 5,
    control_variates: bool = False,
    logit_sigma: float = 0.0,
    discount: float = 0.7,
    correction: float = 1.0,
    reset_token: int = -1,
    seed: int = 0,
) -> Case:
    generator = np.random.default_rng(seed)
    shape = (vocab, hidden, layers)
    controls = control_tensors(shape, "readout" if logit_sigma else "head") if control_variates else ()
    layout = ParameterLayout((*rnn_layout(vocab, hidden, layers, 3.0).tensors, *controls))
    weights = generator.standard_normal(layout.size).astype(np.float32) * np.float32(0.5)
    for name, tensor in layout.split(weights).items():
        if "weight_" in name or name == "head.weight" or name.startswith("control."):
            tensor *= 1.4 / hidden**0.5
    tokens = generator.integers(0, vocab, (n_groups, batch_size, context + scored + 1)).astype(np.uint16)
    is_cold = generator.integers(0, 2, n_groups) if context else np.ones(n_groups)
    cold = is_cold.astype(np.uint8)
    noise = (group_size, control_variates, 0.1, logit_sigma, discount, correction)
    return Case(shape, layout, weights, tokens, context, cold, *noise, reset_token)


def run(given_case: Case, **changes: Any) -> tuple[NDArray[np.float32], NDArray[np.int32]]:  # noqa: ANN401 (options)
    """The members' losses, and their estimate."""
    losses, estimate, _ = run_whole(given_case, **changes)
    return losses, estimate


def run_whole(given_case: Case, **changes: Any) -> tuple[NDArray[np.float32], NDArray[np.int32], float]:  # noqa: ANN401
    """The same, and the variance left."""
    shape, layout, weights, tokens, context, is_cold, group_size, controls, *noise, reset = given_case
    sigma, logit_sigma, discount, correction = noise
    options: dict[str, Any] = {"threads": 1, "weights": weights, **changes}
    first_group = options.pop("first_group", FIRST_GROUP)
    return es_core.rnn_activation_gradient(
        shape,
        layout.table(0),
        np.array([tensor.scale for tensor in layout.tensors], dtype=np.float32),
        options.pop("weights"),
        seed=SEED,
        step=STEP,
        first_member=first_group * group_size,
        group_size=group_size,
        tokens=tokens,
        context=context,
        is_cold=is_cold,
        sigma=sigma,
        logit_sigma=logit_sigma,
        discount=discount,
        correction=correction,
        control_variates=controls,
        reset_token=reset,
        **options,
    )


class Twin:
    """The same estimate from plain loops over members and tokens, in float64."""

    def __init__(self, given_case: Case) -> None:
        self.case = given_case
        self.parts = {k: v.astype(np.float64) for k, v in given_case.layout.split(given_case.weights).items()}
        self.gradient = {name: np.zeros_like(part) for name, part in self.parts.items()}
        self.losses: list[float] = []
        self.squares = [0.0, 0.0]
        vocab, hidden, self.layers = given_case.shape
        self.pitches = [-(-hidden // 32) * 32] * self.layers + [-(-vocab // 32) * 32]

    def read(self, states: Array, token: int, noise: Array | None = None) -> Array:
        """The states [layers, H] after a token."""
        new = np.zeros_like(states)
        states = self.before(states, token)
        for layer in range(self.layers):
            inputs = self.parts[f"rnn.weight_hh_l{layer}"] @ states[layer] + self.parts[f"rnn.bias_l{layer}"]
            below = self.parts["embedding.weight"][token]
            inputs += below if layer == 0 else self.parts[f"rnn.weight_ih_l{layer}"] @ new[layer - 1]
            new[layer] = np.tanh(inputs if noise is None else inputs + noise[layer])
        return new

    def before(self, states: Array, token: int) -> Array:
        """The states that a token is read from."""
        return np.zeros_like(states) if token == self.case.reset_token else states

    def log_probabilities(self, states: Array, noise: Array | float = 0.0) -> Array:
        return self.normalized(self.parts["head.weight"] @ states[-1] + self.parts["head.bias"] + noise)

    def normalized(self, logits: Array) -> Array:
        return np.asarray(logits - logits.max() - np.log(np.exp(logits - logits.max()).sum()))

    def signs(self, member: int, tensor: int, first: int, count: int) -> Array:
        return es_core.sign_noise(SEED, STEP, member, tensor, 0, first, count).astype(np.float64)

    def run(self) -> None:
        n_groups, batch_size, _ = self.case.tokens.shape
        for group in range(n_groups):
            losses = np.zeros(self.case.group_size)
            for sequence in range(batch_size):
                losses += self.run_text(group, sequence)
            self.losses += list(losses / batch_size)

    def run_text(self, group: int, sequence: int) -> Array:
        """Adds one text's gradient; gives the members' mean losses on it."""
        given_case, layers = self.case, self.layers
        vocab, hidden, _ = given_case.shape
        text = given_case.tokens[group, sequence].astype(int)
        scored = len(text) - given_case.context - 1
        states = self.parts["initial_state"].reshape(layers, hidden)
        if not given_case.is_cold[group]:
            for token in text[: given_case.context]:
                states = self.read(states, token)
        text = text[given_case.context :]
        document = np.cumsum(text[:-1] == given_case.reset_token)  # noise changes losses of its own document alone
        path = [states]
        for t in range(scored):
            path.append(self.read(path[-1], text[t]))

        def residuals_of(weight: Array, bias: Array) -> Array:
            logits = [weight @ states[-1] + bias for states in path[1:]]
            return np.asarray(np.exp([self.normalized(row) for row in logits]) - np.eye(vocab)[text[1:]])

        residuals = residuals_of(self.parts["head.weight"], self.parts["head.bias"])
        features = residuals
        if given_case.logit_sigma and given_case.control_variates:
            features = residuals_of(self.parts["control.readout"], self.parts["control.readout_bias"])

        members = [
            FIRST_GROUP * given_case.group_size + group * given_case.group_size + i
            for i in range(given_case.group_size)
        ]
        first_token = sequence * scored
        noise = np.array(
            [
                [
                    [self.signs(m, layer, (first_token + t) * self.pitches[layer], hidden) for layer in range(layers)]
                    for t in range(scored)
                ]
                for m in members
            ]
        )
        logit_noise = np.zeros((len(members), scored, vocab))
        if given_case.logit_sigma:
            pitch = self.pitches[-1]
            logit_noise = np.array(
                [[self.signs(m, layers, (first_token + t) * pitch, vocab) for t in range(scored)] for m in members]
            )
        first_noise = np.array(
            [[self.signs(m, layers + 1, layer * self.pitches[0], hidden) for layer in range(layers)] for m in members]
        )

        losses = np.zeros((len(members), scored))
        states_before = np.zeros((len(members), scored, layers, hidden))
        for i in range(len(members)):
            states = path[0] + (given_case.sigma * first_noise[i] if given_case.is_cold[group] else 0.0)
            for t in range(scored):
                states_before[i, t] = self.before(states, text[t])
                states = self.read(states, text[t], given_case.sigma * noise[i, t])
                losses[i, t] = -self.log_probabilities(states, given_case.logit_sigma * logit_noise[i, t])[text[t + 1]]
        told = losses.mean(axis=1)

        def goes_on(t: int) -> bool:
            return t + 1 < scored and bool(document[t + 1] == document[t])

        def credits_of(losses: Array) -> Array:
            found = losses - losses.mean(axis=0)
            for t in range(scored - 2, -1, -1):
                found[:, t] += given_case.discount * found[:, t + 1] if goes_on(t) else 0.0
            return np.asarray(found)

        credits = credits_of(losses)
        self.squares[0] += (credits**2).sum()
        z, y = np.zeros((2, scored + 1, layers, hidden))
        slopes = 1 - np.array(path[1:]) ** 2
        if given_case.control_variates:
            for t in range(scored - 1, -1, -1):
                for layer in range(layers - 1, -1, -1):
                    if layer == layers - 1:
                        own = features[t] @ self.parts["control.head"]
                    else:
                        own = z[t, layer + 1] @ self.parts[f"control.above_l{layer}"]
                    z[t, layer] = slopes[t, layer] * (own + given_case.discount * y[t + 1, layer])
                    y[t, layer] = z[t, layer] @ self.parts[f"control.next_l{layer}"]
                if text[t] == given_case.reset_token:
                    y[t] = 0.0
            losses = losses - given_case.sigma * np.einsum("itlh,tlh->it", noise, z[:scored])
            if given_case.logit_sigma:
                losses -= given_case.logit_sigma * np.einsum(
                    "itv,tv->it", logit_noise, features @ self.parts["control.logits"]
                )
            carried = np.einsum("itlh,tlh->it", states_before, y[:scored])
            credits = credits_of(losses) - (carried - carried.mean(axis=0))
        self.squares[1] += (credits**2).sum()

        degrees = given_case.group_size - 1
        correction = given_case.correction if given_case.control_variates else 1.0
        deltas = np.einsum("it,itlh->tlh", credits, noise) / (degrees * given_case.sigma)
        if given_case.logit_sigma:
            residuals = np.einsum("it,itv->tv", credits, logit_noise) / (degrees * given_case.logit_sigma)
            if given_case.control_variates:
                self.gradient["control.readout"] += features.T @ np.array(path[1:])[:, -1]
                self.gradient["control.readout_bias"] += features.sum(axis=0)
                self.gradient["control.logits"] -= features.T @ residuals
                residuals = residuals + features @ self.parts["control.logits"]
        if given_case.is_cold[group] and document[0] == 0:
            first = np.einsum("i,ilh->lh", credits[:, 0], first_noise) / (degrees * given_case.sigma)
            self.gradient["initial_state"] += given_case.discount * (correction * first + y[0]).reshape(-1)
        for t, layer in product(range(scored if given_case.control_variates else 0), range(layers)):
            error = slopes[t, layer] * deltas[t, layer]
            if layer < layers - 1:
                self.gradient[f"control.above_l{layer}"] -= np.outer(z[t, layer + 1], error)
            else:
                self.gradient["control.head"] -= np.outer(features[t], error)
            if goes_on(t):
                self.gradient[f"control.next_l{layer}"] -= given_case.discount * np.outer(z[t + 1, layer], error)
        corrected = correction * deltas + z[:scored]
        for t in range(scored):
            before = self.before(path[t], text[t])
            self.gradient["embedding.weight"][text[t]] += corrected[t, 0]
            for layer in range(layers):
                self.gradient[f"rnn.weight_hh_l{layer}"] += np.outer(corrected[t, layer], before[layer])
                self.gradient[f"rnn.bias_l{layer}"] += corrected[t, layer]
                if layer > 0:
                    self.gradient[f"rnn.weight_ih_l{layer}"] += np.outer(corrected[t, layer], path[t + 1][layer - 1])
            self.gradient["head.weight"] += np.outer(residuals[t], path[t + 1][-1])
            self.gradient["head.bias"] += residuals[t]
        return np.asarray(told)

    @property
    def estimate(self) -> Array:
        n_scored = self.case.tokens.shape[1] * (self.case.tokens.shape[2] - self.case.context - 1)
        parts = [
            self.gradient[tensor.name].reshape(-1) * tensor.scale / n_scored for tensor in self.case.layout.tensors
        ]
        return np.asarray(np.concatenate(parts) * es_core.ESTIMATE_UNIT)
