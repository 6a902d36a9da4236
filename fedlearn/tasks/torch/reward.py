"""Tuning of a language model by a reward for its texts, which is a Python function without gradient.

The reward has none, but the probability of each text has: the gradient of the mean reward is the mean of the rewards,
each times the gradient of the logarithm of its text's probability.

Source: Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", 1992.
That a text is compared with others after its prompt: Kool et al., "Buy 4 REINFORCE samples, get a baseline for free!",
2019.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.signatures import calling_line, check_takes
from fedlearn.tasks.task import Batch, LossGradients, Members, NoGradientError, Setting
from fedlearn.tasks.torch.members.members import TorchMembers
from fedlearn.tasks.torch.module_task import Model, ModuleTask, Train
from fedlearn.tasks.torch.seeds import seeded
from fedlearn.tasks.torch.writing import CausalWriter, HuggingFaceTokenizer, padded

TEXTS_PER_PROMPT = 4
"""Texts that are written after a prompt and compared with one another, where gradients are measured."""

MOST_SHOWN = 60
"""Characters of a text that a warning quotes, at most."""

Reward = Callable[[str, str], float]
"""A function that rates a text, given the prompt and the text written after it; higher is better."""
Write = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""A function that gives the tokens [texts, n] that a module writes after prompts [texts, length].

Its last argument is False where prompts are padded."""


@final
class RewardTask(ModuleTask):
    """The task that `reward` makes."""

    kind: ClassVar[str] = "reward"
    unit: ClassVar[str] = "texts"
    least_groups: ClassVar[int] = 4
    is_tuned: ClassVar[bool] = True

    def __init__(
        self,
        model: Model,
        reward: Reward,
        prompts: Sequence[str],
        *,
        tokenizer: HuggingFaceTokenizer | Callable[[], HuggingFaceTokenizer],
        new_tokens: int,
        temperature: float,
        write: Write | None,
        batch_size: int,
        train: Train,
        held_out: Sequence[str],
        scales: Mapping[str, float] | None,
        settings: Mapping[str, Setting] | None,
    ) -> None:
        super().__init__(model, train=train, scales=scales, settings=settings)
        self._new_tokens, self._temperature, self._own_write = new_tokens, temperature, write
        self.batch_size = batch_size * TEXTS_PER_PROMPT if self.is_differentiable else batch_size
        self.batch_size_by_losses = batch_size
        self.data = {"prompt": np.arange(len(prompts))}
        self.held_out = {"prompt": np.arange(len(held_out))}
        self._reward, self._prompts, self._held_out = _Watched(reward), list(prompts), list(held_out)
        self._tokenizer = tokenizer

    @cached_property
    def tokenizer(self) -> HuggingFaceTokenizer:
        """The tokenizer, which is made when it is first needed.

        Raises:
            ValueError: it is none.
        """
        given: object = self._tokenizer
        is_made = isinstance(given, HuggingFaceTokenizer) and not isinstance(given, type)
        made = given if is_made or not callable(given) else given()
        if not isinstance(made, HuggingFaceTokenizer):
            raise ValueError(
                f"tokenizer: expected one with encode and decode, or a function that makes one, got {made!r}; such as "
                "transformers.AutoTokenizer.from_pretrained(NAME) of the model"
            )
        return made

    @property
    def frozen(self) -> Columns:
        texts = json.dumps([self._prompts, self._held_out]).encode()
        return {**super().frozen, "prompts": np.frombuffer(texts, dtype=np.uint8)}

    def losses(self, members: Members, batch: Batch) -> Float32Array:
        assert isinstance(members, TorchMembers)
        prompts = [[self._prompts[int(row)] for row in rows] for rows in batch.rows["prompt"]]
        write = self._own_write or self._writer(self._temperature)
        with self.computing():
            tokens = members(partial(write, self.model), *self._encoded(prompts), seeds=batch.seeds)
        judge = _Judge(self._reward, self.tokenizer)
        rewards = [
            judge.mean(prompts[member // members.group_size], written) for member, written in enumerate(tokens.tolist())
        ]
        return -np.asarray(rewards, dtype=np.float32)

    @property
    def is_differentiable(self) -> bool:
        return self._own_write is None

    @property
    def gradient_reason(self) -> str:
        return f"PyTorch differentiates how likely a text is, drawn at a temperature of {self._drawn_at:g}"

    @property
    def _drawn_at(self) -> float:
        """The temperature of texts of which gradients are measured."""
        return self._temperature or 1.0

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        if not self.is_differentiable:
            raise NoGradientError("how likely a text is that write= gives is not known")
        found = [
            self._gradient_of_group(weights, rows, seed)
            for rows, seed in zip(batch.rows["prompt"], batch.seeds, strict=True)
        ]
        return LossGradients(
            np.concatenate([each.losses for each in found]), np.sum([each.total for each in found], axis=0)
        )

    def _gradient_of_group(self, weights: Float32Array, rows: NDArray[Any], seed: int) -> LossGradients:
        """Minus the mean reward of some texts after each prompt, with the derivative of what the mean would be of all.

        Of so many rows as there are texts, one for each prompt counts. Texts are judged before PyTorch records, so that
        an error of the reward is no missing derivative.
        """
        prompts = [self._prompts[int(row)] for row in rows[::TEXTS_PER_PROMPT] for _ in range(TEXTS_PER_PROMPT)]
        tokens, is_text = (given[0].to(self.device) for given in self._encoded([prompts]))
        writer, judge = self._writer(self._drawn_at), _Judge(self._reward, self.tokenizer)
        with seeded(seed, self.device):
            with self.computing():
                self.load(weights)
                written = writer(self.model, tokens, is_text)
            rewards = [judge(prompt, text) for prompt, text in zip(prompts, written.tolist(), strict=True)]
        advantages, mean = _advantages(rewards), float(torch.tensor(rewards, dtype=torch.float64).mean())

        def loss(_: Mapping[str, Tensor]) -> Tensor:
            likely = writer.log_probabilities(self.model, tokens, is_text, written)
            weighed = (advantages.to(likely) * likely).mean()
            return weighed.detach() - weighed - mean

        return self.gradients_of(loss, weights, Batch({}, (seed,)), draws=False)

    def show(self, loss: float) -> tuple[str, float]:
        return "reward", 0.0 - loss  # of which the least is 0, not -0

    def evaluate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:  # noqa: ARG002
        if not self._held_out:
            return {}
        judge = _Judge(self._reward, self.tokenizer)
        return {"reward": judge.mean(self._held_out, self._written(weights, self._held_out))}

    def texts(self, weights: Float32Array, prompts: Sequence[str]) -> list[tuple[str, str]]:
        given = list(prompts) or self._held_out or self._prompts[: self.batch_size_by_losses]
        judge = _Judge(self._reward, self.tokenizer)
        return [(prompt, judge.text_of(one)) for prompt, one in zip(given, self._written(weights, given), strict=True)]

    def _written(self, weights: Float32Array, prompts: Sequence[str]) -> list[list[int]]:
        """The tokens that unperturbed weights write after each prompt."""
        write = self._own_write or self._writer(0.0)
        found: list[list[int]] = []
        with self.computing():
            self.load(weights)
            for first in range(0, len(prompts), self.batch_size):
                tokens, is_text = self._encoded([prompts[first : first + self.batch_size]])
                found += write(self.model, tokens[0].to(self.device), is_text[0].to(self.device)).tolist()
        return found

    def _writer(self, temperature: float) -> CausalWriter:
        return CausalWriter(new_tokens=self._new_tokens, temperature=temperature, end=end_of(self.tokenizer))

    def _encoded(self, prompts: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        padding = getattr(self.tokenizer, "pad_token_id", None)
        encoded = [[self.tokenizer.encode(text) for text in group] for group in prompts]
        for text, its in zip(chain(*prompts), chain(*encoded), strict=True):
            if not len(its):
                raise ValueError(f"prompts: expected texts of a token or more, got none for {_shown(text)}")
        return padded(encoded, padding or 0)


def _advantages(rewards: Sequence[float]) -> Tensor:
    """The reward of each text less the mean of the others after its prompt, which is exactly 0 where all are alike: an
    optimizer such as Adam would make whole steps of what rounding leaves."""
    by_prompt = torch.tensor(rewards, dtype=torch.float64).reshape(-1, TEXTS_PER_PROMPT)
    apart = by_prompt - by_prompt[:, :1]
    others = (apart.sum(1, keepdim=True) - apart) / (TEXTS_PER_PROMPT - 1)
    return (apart - others).flatten().float()


@final
class _Watched:
    """A reward that warns of its first number that is not finite."""

    def __init__(self, reward: Reward) -> None:
        self._reward = reward
        self._made_at, self._has_warned = calling_line(), False

    def __call__(self, prompt: str, text: str) -> float:
        given: object = self._reward(prompt, text)
        try:
            found = float(given)  # type: ignore[arg-type]  # whatever can't be one says so
        except (TypeError, ValueError) as error:
            what = f"{type(given).__name__} for the text {_shown(text)} after the prompt {_shown(prompt)}"
            raise ValueError(f"reward: expected a number, got {what}; return one") from error
        if not (math.isfinite(found) or self._has_warned):
            self._has_warned = True
            self._made_at.warn(
                f"reward: expected a finite number, got {found} for the text {_shown(text)} after the prompt "
                f"{_shown(prompt)}; what writes such a text does not count, and a mean over held-out prompts is "
                "not finite, either; let the reward give a low number in its place"
            )
        return found


def _shown(text: str) -> str:
    """A text in quotes, or its beginning."""
    return repr(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}...")


@final
class _Judge:
    """A cache of rewards: members often write the same text, whose reward is computed once."""

    def __init__(self, reward: Reward, tokenizer: HuggingFaceTokenizer) -> None:
        self._reward, self._tokenizer = reward, tokenizer
        self._end = end_of(tokenizer)
        self._known: dict[tuple[str, tuple[int, ...]], float] = {}

    def __call__(self, prompt: str, written: list[int]) -> float:
        key = (prompt, tuple(self._up_to_end(written)))
        if key not in self._known:
            self._known[key] = self._reward(prompt, self.text_of(written))
        return self._known[key]

    def text_of(self, written: list[int]) -> str:
        """The text up to its end."""
        return self._tokenizer.decode(self._up_to_end(written))

    def _up_to_end(self, written: list[int]) -> list[int]:
        return written[: written.index(self._end)] if self._end in written else written

    def mean(self, prompts: Sequence[str], written: Sequence[list[int]]) -> float:
        """The mean reward over all prompts."""
        return float(np.mean([self(prompt, tokens) for prompt, tokens in zip(prompts, written, strict=True)]))


def end_of(tokenizer: HuggingFaceTokenizer) -> int | None:
    """The token that ends a text; None where the tokenizer has none."""
    end: int | None = getattr(tokenizer, "eos_token_id", None)
    return end


def reward(
    model: Model,
    reward: Reward,
    prompts: Sequence[str],
    *,
    tokenizer: HuggingFaceTokenizer | Callable[[], HuggingFaceTokenizer],
    new_tokens: int = 32,
    batch_size: int = 8,
    temperature: float = 0.0,
    train: Train = None,
    held_out: Sequence[str] = (),
    write: Write | None = None,
    scales: Mapping[str, float] | None = None,
    settings: Mapping[str, Setting] | None = None,
) -> RewardTask:
    """A task that tunes a causal language model of Hugging Face by a reward for the texts that it writes.

    `reward(prompt, text)` gives a number, higher is better. A run measures gradients of how likely texts are, each
    weighed by its reward: a group writes four texts after each of `batch_size` prompts, at the `temperature`, or at 1
    where that is 0. Where losses of perturbed models are measured, the members of a group write a text after each of
    these prompts; at a temperature above 0 they draw the same random numbers. The unperturbed model is judged on the
    prompts in `held_out`, always with its most likely tokens. The tokenizer may also be a function that makes
    one. Any other module can be used with a `write` of its own, by losses.

    Raises:
        ValueError: there is no prompt, nothing is to be written, the temperature is negative, or a function takes other
            arguments.
    """
    check_takes("reward", reward, "prompt", "text")
    if write is not None:
        check_takes("write", write, "model", "tokens", "is_text")
    if not prompts or new_tokens < 1 or temperature < 0:
        raise ValueError(
            "expected at least one prompt, new_tokens above 0 and a temperature of 0 or more, "
            f"got {len(prompts)} prompts, new_tokens {new_tokens}, temperature {temperature}"
        )

    return RewardTask(
        model,
        reward,
        prompts,
        tokenizer=tokenizer,
        new_tokens=new_tokens,
        temperature=temperature,
        write=write,
        batch_size=batch_size,
        train=train,
        held_out=held_out,
        scales=scales,
        settings=settings,
    )
