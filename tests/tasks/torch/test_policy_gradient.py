"""Gradients of a mean reward by those of how likely texts are."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedlearn
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.task import Batch, NoGradientError, flat_weights
from fedlearn.tasks.torch.reward import TEXTS_PER_PROMPT, RewardTask, reward
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.tasks.user.recommendation import settle
from fedlearn.tasks.user.task_objective import TaskObjective
from tests.tasks.user.sloping import SCHEMA

transformers = pytest.importorskip("transformers")

PROMPTS = ["ab", "c", "dab", "cc"]
N_LETTERS, N_NEW = 4, 2


class Letters:
    """Letters are their numbers from 0 on."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - 97 for letter in text]

    def decode(self, tokens: list[int]) -> str:
        return "".join(chr(token + 97) for token in tokens)


def model() -> nn.Module:
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=N_LETTERS, n_embd=8, n_layer=1, n_head=2, n_positions=6, bos_token_id=None, eos_token_id=None
    )
    module: nn.Module = transformers.GPT2LMHeadModel(config).eval()
    for parameter in module.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.3)
    return module


def count(prompt: str, text: str) -> float:
    return text.count("a") + 2.0 * (text[0] == prompt[-1])


def task(judge: Callable[[str, str], float] = count, **more: Any) -> RewardTask:  # noqa: ANN401
    given: dict[str, Any] = {"new_tokens": N_NEW, "batch_size": 2, "held_out": PROMPTS} | more
    return reward(model, judge, PROMPTS, tokenizer=Letters(), **given)


def batch(prompts: list[list[int]], seeds: tuple[int, ...]) -> Batch:
    """A batch whose groups write after these prompts."""
    rows = [[prompt for prompt in group for _ in range(TEXTS_PER_PROMPT)] for group in prompts]
    return Batch({"prompt": np.array(rows)}, seeds)


def exact(mine: RewardTask, prompts: list[str], temperature: float) -> tuple[float, Float32Array]:
    """The mean reward of all texts, each as often as it is likely, and its gradient."""
    mean = torch.zeros(())
    for prompt in prompts:
        for text in product(range(N_LETTERS), repeat=N_NEW):
            tokens = torch.tensor([Letters().encode(prompt) + list(text)])
            logits = mine.model(tokens).logits[0, -1 - N_NEW : -1] / temperature
            likely = logits.log_softmax(-1).gather(1, torch.tensor(text)[:, None]).sum().exp()
            mean = mean + likely * count(prompt, Letters().decode(list(text))) / len(prompts)
    parts: tuple[Tensor, ...] = torch.autograd.grad(mean, list(mine.parameters.values()))
    return float(mean.detach()), torch.cat([part.flatten() for part in parts]).numpy()


@pytest.mark.parametrize(("given", "temperature"), [(0.0, 1.0), (2.0, 2.0)])
def test_the_mean_of_many_gradients_is_that_of_the_mean_reward(given: float, temperature: float) -> None:
    mine, n = task(temperature=given), 100
    weights = flat_weights(mine.tensors)
    mean, gradient = exact(mine, ["ab", "dab"], temperature)
    found = mine.loss_gradients(weights, batch([[0, 2]] * n, tuple(range(n))))
    assert -found.losses.mean() == pytest.approx(mean, abs=0.1)
    estimate = -found.total / n
    alike = float(estimate @ gradient) / float(np.linalg.norm(estimate) * np.linalg.norm(gradient))
    assert alike > 0.99
    assert np.linalg.norm(estimate) / np.linalg.norm(gradient) == pytest.approx(1.0, abs=0.05)


def test_a_loss_is_minus_the_mean_reward_of_what_was_written() -> None:
    asked: list[tuple[str, str]] = []

    def length(prompt: str, text: str) -> float:
        asked.append((prompt, text))
        return float(ord(text[0]))

    mine = task(length)
    found = mine.loss_gradients(flat_weights(mine.tensors), batch([[1, 3]], (5,)))
    assert {prompt for prompt, _ in asked} == {"c", "cc"}
    assert len({text for _, text in asked}) > 4
    assert 97.0 < -found.losses[0] < 100.0


def test_texts_follow_from_the_seed_of_their_group_alone() -> None:
    mine = task()
    weights = flat_weights(mine.tensors)
    together = mine.loss_gradients(weights, batch([[0, 1], [2, 3]], (7, 8)))
    apart = [mine.loss_gradients(weights, batch([prompts], (seed,))) for prompts, seed in (([0, 1], 7), ([2, 3], 8))]
    assert together.losses.tolist() == [each.losses[0] for each in apart]
    assert np.allclose(together.total, apart[0].total + apart[1].total, atol=1e-6)
    other = mine.loss_gradients(weights, batch([[0, 1]], (9,)))
    assert not np.allclose(other.total, apart[0].total, atol=1e-3)


def test_rewards_that_are_alike_teach_nothing() -> None:
    mine = task(lambda prompt, text: float(len(prompt + text)))
    found = mine.loss_gradients(flat_weights(mine.tensors), batch([[0, 2]], (1,)))
    assert not found.total.any()
    assert found.losses.tolist() == [-4.5]


def test_rewards_that_are_alike_teach_nothing_by_rounding() -> None:
    mine = task(lambda prompt, text: -1.7)  # noqa: ARG005 (as rewards are called)
    found = mine.loss_gradients(flat_weights(mine.tensors), batch([[0, 2]], (1,)))
    assert not found.total.any()


def test_small_differences_of_great_rewards_count() -> None:
    def gradient(offset: float) -> Float32Array:
        mine = task(lambda prompt, text: offset + count(prompt, text))
        return mine.loss_gradients(flat_weights(mine.tensors), batch([[0, 2]], (1,))).total

    assert np.allclose(gradient(2.0**30), gradient(0.0), atol=1e-6)


def test_an_error_of_the_reward_is_no_missing_derivative() -> None:
    def fail(prompt: str, text: str) -> float:
        raise RuntimeError(f"no answer about {prompt}{text[:0]}")

    mine = task(fail)
    with pytest.raises(RuntimeError, match="no answer about ab"):
        mine.loss_gradients(flat_weights(mine.tensors), batch([[0, 2]], (1,)))


def test_a_reward_that_is_not_finite_does_not_count() -> None:
    mine = task(lambda prompt, text: float("nan"))  # noqa: ARG005 (as rewards are called)
    weights = flat_weights(mine.tensors)
    with pytest.warns(RuntimeWarning, match="reward: expected a finite number"):
        found = mine.loss_gradients(weights, batch([[0, 1]], (1,)))
    assert found.losses.tolist() == [np.inf]
    assert not found.total.any()


def test_a_group_writes_several_texts_after_as_many_prompts_as_members_do() -> None:
    mine = task()
    assert (mine.batch_size, mine.batch_size_by_losses) == (2 * TEXTS_PER_PROMPT, 2)
    assert mine.work_per_member == 2 * TEXTS_PER_PROMPT
    shown = task(held_out=[]).texts(flat_weights(mine.tensors), [])
    assert [prompt for prompt, _ in shown] == PROMPTS[:2]


def test_a_run_takes_small_steps_along_gradients() -> None:
    mine = task()
    objective = TaskObjective(mine, seed=1)
    config, reasons = settle(SCHEMA.build({"perturb": "weights", "head": "perturbed"}), objective, mine.data, _speed)
    assert str(reasons[0]) == (
        "measure = gradients: PyTorch differentiates how likely a text is, drawn at a temperature of 1"
    )
    assert config.optimizer.learning_rate == pytest.approx(0.00015)
    assert strategy_of(config).optimizer.slots == ("first_moment", "second_moment")
    assert config.strategy.restarts == 0


def test_a_first_text_whose_reward_is_not_finite_does_not_decide_what_is_measured() -> None:
    asked: list[str] = []

    def judge(prompt: str, text: str) -> float:
        asked.append(text)
        return float("nan") if len(asked) == 1 else count(prompt, text)

    mine = task(judge)
    given = SCHEMA.build({"perturb": "weights", "head": "perturbed"})
    with pytest.warns(RuntimeWarning, match="reward: expected a finite number"):
        config, _ = settle(given, TaskObjective(mine, seed=1), mine.data, _speed)
    assert config.strategy.measure == "gradients"


def test_whoever_names_noise_has_losses_compared() -> None:
    mine = task()
    objective = TaskObjective(mine, seed=1)
    given = {"perturb": "weights", "head": "perturbed", "sigma": 0.006}
    config, reasons = settle(SCHEMA.build(given), objective, mine.data, _speed)
    assert "measure = losses: sigma = 0.006 goes with noise" in map(str, reasons)
    assert not [reason for reason in map(str, reasons) if "a loss is of" in reason]
    assert config.optimizer.learning_rate == pytest.approx(0.0005)


def test_what_another_function_writes_has_no_gradient() -> None:
    def write(model: nn.Module, tokens: Tensor, is_text: Tensor) -> Tensor:  # noqa: ARG001 (as writers are called)
        return tokens[:, -1:]

    mine = task(write=write)
    assert (mine.batch_size, mine.is_differentiable) == (2, False)
    with pytest.raises(NoGradientError, match="how likely a text is that write= gives is not known"):
        mine.loss_gradients(flat_weights(mine.tensors), batch([[0, 1]], (1,)))


def test_a_run_that_began_by_losses_alone_may_go_on() -> None:
    def write(model: nn.Module, tokens: Tensor, is_text: Tensor) -> Tensor:  # noqa: ARG001 (as writers are called)
        return tokens[:, -1:]

    hashes = {NamedTask(each, "t.py:task", b"").identity["tensors"] for each in (task(), task(write=write))}
    assert len(hashes) == 1


def test_a_prompt_without_tokens_is_refused() -> None:
    mine = task()
    with pytest.raises(ValueError, match="prompts: expected texts of a token or more, got none for ''"):
        mine.texts(flat_weights(mine.tensors), ["ab", ""])


@pytest.mark.parametrize("seed", [1, 4])  # by 4 none of the first texts is rewarded
def test_a_run_learns_what_is_rewarded(seed: int) -> None:
    def count_d(prompt: str, text: str) -> float:
        return text.count("d") - (text == "dd" and prompt[-1] == "b")

    mine = task(count_d, settings={"learning_rate": 0.005})
    before = mine.evaluate(flat_weights(mine.tensors), threads=1)["reward"]
    trained = fedlearn.train(mine, steps=150, seed=seed, threads=1, runs=None)
    assert before == 0.0
    assert trained.figures["reward"] == 1.5


def _speed(*_: object) -> float:
    return 100.0
