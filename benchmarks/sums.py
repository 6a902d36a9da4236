"""The sums of benchmarks/fine_tuning.py: a small GPT, what it is asked, and what it has learned besides."""

import random
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

LETTERS = "0123456789+="
ANSWERS = {f"{a:02}+{b:02}=": f"{a + b:03}" for a in range(100) for b in range(100)}
PROMPTS = random.Random(0).sample(list(ANSWERS), k=len(ANSWERS))
N_TRAINING = 8000


class Letters:
    """A token for each letter."""

    @staticmethod
    def encode(text: str) -> list[int]:
        """The tokens of a text."""
        return [LETTERS.index(letter) for letter in text]

    @staticmethod
    def decode(tokens: list[int]) -> str:
        """The text of tokens."""
        return "".join(LETTERS[token] for token in tokens)


def exact(prompt: str, text: str) -> float:
    """1 for the right sum."""
    return float(text == ANSWERS[prompt])


def pretrained(accuracy: float, seed: int) -> GPT2LMHeadModel:
    """A student that was trained by backpropagation until it answers so many sums of a batch right."""
    torch.manual_seed(seed)
    shape = GPT2Config(
        vocab_size=len(LETTERS),
        n_positions=9,
        n_embd=64,
        n_layer=2,
        n_head=4,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own function, in one operation instead of eight
        bos_token_id=None,
        eos_token_id=None,
    )
    student = GPT2LMHeadModel(shape)
    student.eval()  # type: ignore[no-untyped-call]
    optimizer, choices, right = torch.optim.AdamW(student.parameters(), lr=0.002), random.Random(seed), 0.0
    while right < accuracy:
        chosen = choices.sample(PROMPTS[:N_TRAINING], k=256)
        texts = torch.tensor([Letters.encode(prompt + ANSWERS[prompt]) for prompt in chosen])
        logits = student(texts).logits[:, 5:8]
        right = (logits.argmax(-1) == texts[:, 6:]).all(1).float().mean().item()
        optimizer.zero_grad()
        cross_entropy(logits.flatten(0, 1), texts[:, 6:].flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return student


class Adapted(nn.Module):
    """x W + b + x A B: a frozen layer with the two factors of LoRA. Source: Hu et al., arXiv 2106.09685."""

    def __init__(self, inner: Conv1D, rank: int) -> None:
        super().__init__()
        n_inputs, n_outputs = inner.weight.shape
        self.inner = inner.requires_grad_(False)
        self.lora_down = nn.Parameter(torch.randn(n_inputs, rank) / n_inputs**0.5)
        self.lora_up = nn.Parameter(torch.zeros(rank, n_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Like the layer that it stands for."""
        adapted: Tensor = self.inner(x) + x @ self.lora_down @ self.lora_up
        return adapted


def with_lora(student: GPT2LMHeadModel, rank: int) -> GPT2LMHeadModel:
    """The student with factors beside every matrix of its blocks, and all else frozen."""
    torch.manual_seed(0)
    student.requires_grad_(False)
    for name, layer in list(student.named_modules()):
        if isinstance(layer, Conv1D):
            place, _, leaf = name.rpartition(".")
            setattr(student.get_submodule(place), leaf, Adapted(layer, rank))
    return student


@torch.no_grad()
def drift(before: nn.Module, after: nn.Module) -> float:
    """Mean divergence in nats between what both expect next in texts that are no sums."""
    texts = torch.randint(0, len(LETTERS), (2000, 9), generator=torch.Generator().manual_seed(0))
    was, now = (model(texts).logits.log_softmax(-1) for model in (before, after))
    return float((was.exp() * (was - now)).sum(-1).mean())


def load(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Puts learned tensors into the model."""
    with torch.no_grad():
        for name, tensor in weights.items():
            model.get_parameter(name).copy_(tensor)
