from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedlearn.es.noise import member_noise
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.task import Batch, flat_weights
from fedlearn.tasks.torch import writing
from fedlearn.tasks.torch.members.batched import batched
from fedlearn.tasks.torch.members.noise import Noise
from fedlearn.tasks.torch.members.sequential import sequential
from fedlearn.tasks.torch.reward import reward
from fedlearn.tasks.torch.writing import CausalWriter, padded

transformers = pytest.importorskip("transformers")

Draw = Callable[..., list[Noise]]
PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3]]
N_NEW = 6


def model_of(name: str, **more: Any) -> nn.Module:  # noqa: ANN401 (settings of any kind)
    torch.manual_seed(0)
    if name == "GPT2":
        config = transformers.GPT2Config(vocab_size=20, n_embd=16, n_layer=2, n_head=2, n_positions=16)
        model: nn.Module = transformers.GPT2LMHeadModel(config)
    else:
        sizes: dict[str, Any] = {
            "vocab_size": 20, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16, "pad_token_id": 0,
            **more,
        }  # fmt: skip
        model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**sizes))
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.5)
    return model.eval()


@contextmanager
def seeded() -> Iterator[None]:
    torch.manual_seed(1)
    yield


@torch.no_grad()
@pytest.mark.parametrize("name", ["GPT2", "Llama", "Qwen2"])
def test_members_write_what_generate_writes_with_their_weights(name: str, draw: Draw) -> None:
    model = model_of(name)
    model.generation_config.eos_token_id = None  # type: ignore[union-attr]
    parameters = list(model.parameters())
    weights = [parameter.detach().clone() for parameter in parameters]
    noise = draw(parameters, 5, sigma=0.1)
    (tokens,), (is_text,) = padded([PROMPTS], 0)

    def generated() -> Tensor:
        more = {"max_new_tokens": N_NEW, "do_sample": False, "pad_token_id": 0}
        texts = [model.generate(torch.tensor([prompt]), **more)[0, len(prompt) :] for prompt in PROMPTS]  # type: ignore[operator]
        return torch.stack(texts)

    write = partial(CausalWriter(new_tokens=N_NEW, temperature=0.0, end=None), model)
    found = batched(write, parameters, noise, (tokens, is_text))
    assert torch.equal(found, torch.stack(sequential(generated, parameters, weights, noise)))
    assert len({tuple(text) for texts in found.tolist() for text in texts}) > 5


class Renamed(nn.Module):
    """A model whose `forward` has the other name for its cache: libraries before 5.24 have one, later ones another."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.is_new = "cache" in signature(model.forward).parameters
        self.forward = self._earlier if self.is_new else self._later

    def _earlier(self, tokens: Tensor, attention_mask: Tensor, past_key_values: object, use_cache: bool) -> object:
        return self.model(tokens, attention_mask=attention_mask, cache=past_key_values, use_cache=use_cache)

    def _later(self, tokens: Tensor, attention_mask: Tensor, cache: object, use_cache: bool) -> object:
        return self.model(tokens, attention_mask=attention_mask, past_key_values=cache, use_cache=use_cache)


@torch.no_grad()
def test_the_cache_has_the_name_that_a_model_knows() -> None:
    model = model_of("Llama")
    prompts = torch.tensor(PROMPTS[:1])
    write = CausalWriter(new_tokens=N_NEW, temperature=0.0, end=None)
    expected = write(model, prompts, torch.ones_like(prompts, dtype=torch.bool))
    assert torch.equal(write(Renamed(model), prompts, torch.ones_like(prompts, dtype=torch.bool)), expected)


@torch.no_grad()
def test_at_a_temperature_members_of_a_group_draw_the_same(draw: Draw) -> None:
    model = model_of("Llama")
    parameters = list(model.parameters())
    weights = [parameter.detach().clone() for parameter in parameters]
    (tokens,), (is_text,) = padded([PROMPTS], 0)
    write = partial(CausalWriter(new_tokens=N_NEW, temperature=2.0, end=None), model)
    silent = draw(parameters, 3, sigma=0.0)
    with seeded():
        found = batched(write, parameters, silent, (tokens, is_text))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], CausalWriter(new_tokens=N_NEW, temperature=0.0, end=None)(model, tokens, is_text))
    noise = draw(parameters, 3, sigma=0.1)
    with seeded():
        found = batched(write, parameters, noise, (tokens, is_text))
    alone = sequential(write, parameters, weights, noise, (tokens, is_text), seeded=seeded)
    assert torch.equal(found, torch.stack(alone))


@torch.no_grad()
def test_samples_follow_the_probabilities() -> None:
    writer = CausalWriter(new_tokens=1, temperature=0.5, end=None)
    torch.manual_seed(0)
    chosen = writer._choose(torch.tensor([0.0, 0.5, -20.0]).expand(20000, 3))
    shares = torch.bincount(chosen, minlength=3) / 20000
    torch.testing.assert_close(shares, torch.tensor([0.0, 1.0, -40.0]).softmax(0), atol=0.02, rtol=0)


@torch.no_grad()
def test_nothing_more_is_written_when_all_texts_have_ended() -> None:
    model = model_of("GPT2")
    (tokens,), (is_text,) = padded([PROMPTS], 0)
    whole = CausalWriter(new_tokens=N_NEW, temperature=0.0, end=None)(model, tokens, is_text)
    last = int(whole[0, 2])
    calls: list[int] = []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    first = CausalWriter(new_tokens=N_NEW, temperature=0.0, end=last)(model, tokens[:1], is_text[:1])
    n_read = int((whole[0] == last).nonzero()[0]) + 1
    assert len(calls) == n_read
    assert first[0, :n_read].tolist() == whole[0, :n_read].tolist()
    assert first[0, n_read:].tolist() == [0] * (N_NEW - n_read)


def test_more_tokens_than_the_model_has_positions_for_are_refused() -> None:
    write = CausalWriter(new_tokens=20, temperature=0.0, end=None)
    with pytest.raises(ValueError, match=r"new_tokens: .* positions \(16\) .* prompts of up to 2 .* new_tokens 20"):
        write(model_of("GPT2"), torch.tensor([[1, 2]]), torch.ones(1, 2, dtype=torch.bool))


@pytest.mark.parametrize(
    ("name", "more", "window"),
    [
        ("Mistral", {"sliding_window": 7}, 7),
        ("Mistral", {"sliding_window": None}, None),
        ("Qwen2", {"sliding_window": 7, "use_sliding_window": False}, None),
        ("Qwen2", {"sliding_window": 7, "use_sliding_window": True, "max_window_layers": 1}, 7),
        ("Gemma2", {"sliding_window": 7, "head_dim": 8}, 7),
    ],
)
def test_texts_are_no_longer_than_layers_look_back(name: str, more: dict[str, Any], window: int | None) -> None:
    model = model_of(name, **more)
    prompts = torch.tensor([[1, 2]])
    write = partial(CausalWriter, temperature=0.0, end=None)
    with torch.no_grad():
        assert write(new_tokens=5)(model, prompts, prompts.bool()).shape == (1, 5)
        if window is None:
            assert write(new_tokens=6)(model, prompts, prompts.bool()).shape == (1, 6)
            return
        with pytest.raises(ValueError, match=r"within the 7 tokens .* prompts of up to 2 tokens and new_tokens 6"):
            write(new_tokens=6)(model, prompts, prompts.bool())


def test_texts_that_ended_earlier_stay_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([[7, 1], [2, 7], [3, 3]])

    def read(*_: object, **__: object) -> Tensor:
        return nn.functional.one_hot(torch.tensor(next(answers)), 8).float()[:, None]

    monkeypatch.setattr(writing, "_read", read)
    prompts = torch.ones(2, 1, dtype=torch.int64)
    written = CausalWriter(new_tokens=3, temperature=0.0, end=7)(nn.Identity(), prompts, prompts.bool())
    assert written.tolist() == [[7, 2, 0], [1, 7, 0]]


@torch.no_grad()
def test_texts_are_as_likely_as_their_tokens_up_to_the_end() -> None:
    model, end, temperature = model_of("GPT2"), 7, 1.5
    (tokens,), (is_text,) = padded([PROMPTS], 0)
    written = torch.tensor([[2, end, 9, end, 1], [end, 4, 4, 4, 4], [1, 2, 3, 4, 5]])
    found = CausalWriter(new_tokens=5, temperature=temperature, end=end).log_probabilities(
        model, tokens, is_text, written
    )

    def likely(prompt: list[int], text: list[int]) -> float:
        total = 0.0
        for number, token in enumerate(text):
            logits = model(torch.tensor([prompt + text[:number]])).logits[0, -1]
            total += float((logits / temperature).log_softmax(-1)[token])
        return total

    texts = [[2, end], [end], [1, 2, 3, 4, 5]]
    expected = [likely(prompt, text) for prompt, text in zip(PROMPTS, texts, strict=True)]
    assert found.tolist() == pytest.approx(expected, abs=1e-4)
    whole = CausalWriter(new_tokens=5, temperature=temperature, end=None)
    ends = whole.log_probabilities(model, tokens, is_text, written)
    assert float(ends[2]) == pytest.approx(float(found[2]), abs=1e-6)
    assert bool((ends[:2] < found[:2] - 0.1).all())


@torch.no_grad()
def test_the_likelihood_of_a_text_is_read_up_to_the_last_end_alone() -> None:
    model, end = model_of("Llama"), 7
    (tokens,), (is_text,) = padded([PROMPTS], 0)
    written = torch.tensor([[2, end, 0, 0, 0], [end, 4, 0, 0, 0], [1, 2, end, 0, 0]])
    read: list[tuple[int, int]] = []

    def remember(_: nn.Module, given: tuple[Tensor], answer: Any) -> None:  # noqa: ANN401 (transformers' own)
        read.append((given[0].shape[1], answer.logits.shape[1]))

    with_hook = model.register_forward_hook(remember)
    CausalWriter(new_tokens=5, temperature=1.0, end=end).log_probabilities(model, tokens, is_text, written)
    with_hook.remove()
    assert read == [(tokens.shape[1] + 2, 3)]


def test_prompts_are_padded_on_the_left_to_the_longest_of_all_groups() -> None:
    tokens, is_text = padded([[[1, 2], [3]], [[4, 5, 6], [7]]], 9)
    assert tokens.tolist() == [[[9, 1, 2], [9, 9, 3]], [[4, 5, 6], [9, 9, 7]]]
    assert is_text.sum(-1).tolist() == [[2, 1], [3, 1]]
    assert is_text[0, 1].tolist() == [False, False, True]


class Numbers:
    eos_token_id = 7

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, tokens: list[int]) -> str:
        return " ".join(map(str, tokens))


def test_a_language_model_is_judged_by_what_it_writes() -> None:
    model = model_of("Llama")

    def variety(prompt: str, text: str) -> float:
        assert "7" not in text.split()
        return float(len(set(text.split())) - int(prompt[0]))

    def total(prompt: str, text: str) -> float:
        return float(sum(map(int, (prompt + " " + text).split())))

    prompts = ["3 1 4", "1 5", "9 2 6"]
    more: dict[str, Any] = {"new_tokens": 5, "temperature": 1.0, "batch_size": 2, "held_out": ["3"]}
    task = reward(model, variety, prompts, tokenizer=Numbers, **more)
    weights = flat_weights(task.tensors)
    noise = member_noise(task.layout, Trials(0, Perturbation(sigma=0.1, rank=1), 5, 0, 10), seed=1)
    batch = Batch({"prompt": np.array([[0, 1], [2, 0]])}, seeds=(4, 5))
    found = task.losses(task.members(weights, noise, n_groups=2), batch)
    assert np.array_equal(task.losses(task.members(weights, noise, n_groups=2), batch), found)
    assert len(set(found.tolist())) > 1
    figures = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        figures.append(reward(model, total, prompts, tokenizer=Numbers, **more).evaluate(weights, threads=1))
    greedy = {**more, "temperature": 0.0}
    assert figures == [reward(model, total, prompts, tokenizer=Numbers, **greedy).evaluate(weights, threads=1)] * 2
    assert "one by one: " in task.report()


class Plain(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.one_hot(tokens, 20).float()


class Bare(Plain):
    def forward(self, tokens: Tensor, **_: Any) -> Tensor:  # noqa: ANN401 (what transformers' models take)
        return super().forward(tokens)


@pytest.mark.parametrize(
    ("model", "received"),
    [(Plain(), r"Plain\.forward\(tokens\)"), (Bare(), "Bare, which gives Tensor")],
    ids=["without a mask", "without logits"],
)
def test_a_model_that_is_none_of_transformers_is_refused_with_the_remedy(model: nn.Module, received: str) -> None:
    write = CausalWriter(new_tokens=2, temperature=0.0, end=None)
    with pytest.raises(
        ValueError, match=f"model: expected a causal language model .*, got {received}; or let write= be"
    ):
        write(model, *(each[0] for each in padded([PROMPTS], 0)))
