from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedlearn.es.noise import member_noise
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.task import Batch, flat_weights
from fedlearn.tasks.torch.reward import RewardTask, reward
from fedlearn.tasks.torch.writing import HuggingFaceTokenizer

PROMPTS = ["a", "bcd", "ab", "dd"]


class Letters:
    """Letters are their numbers from 1 on."""

    eos_token_id = 0
    pad_token_id = None

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - 96 for letter in text]

    def decode(self, tokens: list[int]) -> str:
        return "".join(chr(token + 96) for token in tokens)


class Writer(nn.Module):
    """Writes what a table says after the last letter."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(6, 6)


def write(model: nn.Module, prompts: Tensor, is_text: Tensor) -> Tensor:
    assert bool(is_text[:, -1].all())
    assert isinstance(model, Writer)
    written = [prompts[:, -1]]
    for _ in range(3):
        written.append(model.table(written[-1]).argmax(-1))
    return torch.stack(written[1:], 1)


def count_e(prompt: str, text: str) -> float:
    assert prompt in PROMPTS
    assert all(letter in "abcde" for letter in text)
    return text.count("e") - len(text) / 10


def task(**more: Any) -> RewardTask:  # noqa: ANN401
    return reward(Writer, count_e, PROMPTS, tokenizer=Letters, batch_size=2, write=write, **more)


def judged(table: np.ndarray[Any, Any], prompts: list[str]) -> float:
    """The mean reward, letter by letter."""
    total = 0.0
    for prompt in prompts:
        last, text = Letters().encode(prompt)[-1], ""
        for _ in range(3):
            last = int(table[last].argmax())
            if last == 0:
                break
            text += Letters().decode([last])
        total += count_e(prompt, text)
    return total / len(prompts)


def test_a_loss_is_the_mean_reward_negated() -> None:
    mine = task()
    noise = member_noise(mine.layout, Trials(0, Perturbation(sigma=0.7, rank=1), 6, 0, 12), seed=1)
    members = mine.members(flat_weights(mine.tensors), noise, n_groups=2)
    batch = Batch({"prompt": np.array([[0, 1], [3, 2]])}, seeds=(1, 2))
    found = mine.losses(members, batch)
    assert found.dtype == np.float32
    assert len(set(found.tolist())) > 2
    for member, tensors in enumerate(members.each()):
        prompts = [["a", "bcd"], ["dd", "ab"]][member // 6]
        assert found[member] == pytest.approx(-judged(tensors["table.weight"], prompts), abs=1e-6)
    assert mine.show(-0.5) == ("reward", 0.5)
    assert str(mine.show(0.0)[1]) == "0.0"
    assert mine.least_groups == 4  # since a group has few prompts


def test_held_out_prompts_are_judged_by_unperturbed_weights() -> None:
    mine = task(held_out=["dd", "a", "ab"])
    table = np.random.default_rng(2).standard_normal((6, 6)).astype(np.float32)
    assert mine.evaluate(table.reshape(-1), threads=1) == {"reward": pytest.approx(judged(table, ["dd", "a", "ab"]))}
    assert task().evaluate(table.reshape(-1), threads=1) == {}


def test_prompts_are_data_by_number_and_their_text_is_identity() -> None:
    mine = task(held_out=["a"])
    assert mine.data["prompt"].tolist() == [0, 1, 2, 3]
    assert (mine.work_per_member, mine.unit, mine.kind) == (2, "texts", "reward")
    other = reward(Writer, count_e, ["a", "bcd", "ab", "de"], tokenizer=Letters, write=write, held_out=["a"])
    assert mine.frozen["prompts"].tobytes() != other.frozen["prompts"].tobytes()
    assert mine.frozen["prompts"].tobytes() == task(held_out=["a"]).frozen["prompts"].tobytes()
    assert mine.frozen["prompts"].tobytes() != task().frozen["prompts"].tobytes()


@pytest.mark.parametrize("given", [None, lambda: None, "gpt2"])
def test_what_is_no_tokenizer_is_refused(given: Any) -> None:  # noqa: ANN401
    mine = reward(Writer, count_e, PROMPTS, tokenizer=given, write=write)
    with pytest.raises(ValueError, match=r"tokenizer: expected one with encode and decode, or .*, got (None|'gpt2'); "):
        _ = mine.tokenizer


def test_a_reward_is_asked_for_once_where_members_write_the_same() -> None:
    asked: list[tuple[str, str]] = []

    def ask(prompt: str, text: str) -> float:
        asked.append((prompt, text))
        return 1.0

    tokenizer: HuggingFaceTokenizer = Letters()
    mine = reward(Writer, ask, PROMPTS, tokenizer=tokenizer, batch_size=2, write=write)
    noise = member_noise(mine.layout, Trials(0, Perturbation(sigma=1e-4, rank=1), 12, 0, 12), seed=1)
    members = mine.members(flat_weights(mine.tensors), noise, n_groups=1)
    assert mine.losses(members, Batch({"prompt": np.array([[0, 1]])}, seeds=(1,))).tolist() == [-1.0] * 12
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [({"new_tokens": 0}, "new_tokens 0"), ({"temperature": -0.1}, "temperature -0.1")],
)
def test_what_can_not_be_written_is_an_error(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task(**more)
    with pytest.raises(ValueError, match="got 0 prompts"):
        reward(Writer, count_e, [], tokenizer=Letters)


@pytest.mark.parametrize("wrong", ["reward", "write"])
def test_functions_that_take_other_arguments_are_refused(wrong: str) -> None:
    functions = {"reward": count_e, "write": write, wrong: lambda: 0.0}
    with pytest.raises(ValueError, match=rf"{wrong}: expected a function of \(.*\), got <lambda>\(\): too many"):
        reward(Writer, prompts=PROMPTS, tokenizer=Letters, **functions)  # type: ignore[arg-type]


def test_rewards_that_are_not_finite_are_warned_of_once() -> None:
    def never_known(prompt: str, text: str) -> float:
        assert prompt in PROMPTS, text
        return np.nan

    mine = reward(Writer, never_known, PROMPTS, tokenizer=Letters, batch_size=2, write=write)
    noise = member_noise(mine.layout, Trials(0, Perturbation(sigma=0.7, rank=1), 6, 0, 12), seed=1)
    members = mine.members(flat_weights(mine.tensors), noise, n_groups=2)
    batch = Batch({"prompt": np.array([[0, 1], [3, 2]])}, seeds=(1, 2))
    with pytest.warns(RuntimeWarning, match=r"^reward: expected a finite number, got nan for the text '") as warned:
        assert np.isnan(mine.losses(members, batch)).all()
    assert [warning.filename for warning in warned] == [__file__]
    assert np.isnan(mine.losses(members, batch)).all()  # without another warning, which would be an error


def test_texts_follow_prompts_that_are_given_or_held_out_up_to_their_end() -> None:
    table = np.zeros((6, 6), dtype=np.float32)
    for letter, following in ((1, 2), (2, 5), (5, 0), (4, 4)):  # a, b, e and an end; d and d
        table[letter, following] = 1.0
    weights = table.reshape(-1)
    assert task(held_out=["a", "dd", "cb"]).texts(weights, []) == [("a", "be"), ("dd", "ddd"), ("cb", "e")]
    assert task(held_out=["a"]).texts(weights, ["d"]) == [("d", "ddd")]
    assert task().texts(weights, []) == [("a", "be"), ("bcd", "ddd")]


def test_a_reward_that_is_no_number_is_refused() -> None:
    mine = reward(Writer, lambda prompt, text: None, PROMPTS, tokenizer=Letters(), write=write, held_out=["ab"])  # type: ignore[arg-type,return-value]  # noqa: ARG005
    with pytest.raises(ValueError, match=r"reward: expected a number, got NoneType for the text '.*' after .*'ab'"):
        mine.evaluate(flat_weights(mine.tensors), threads=1)
