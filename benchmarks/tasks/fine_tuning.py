"""What a reward without gradient makes of a pretrained language model, and what it forgets meanwhile.

A small GPT is pretrained by backpropagation until it answers a quarter of two-digit sums, then tuned for some seconds
on one processor by whether greedy decoding writes the right answer: over all weights, over LoRA's factors, and over
all weights with a pull towards the start. A fifth of the sums is never trained on and measured. Drift is how far the
model's expectations in texts that are no sums move: the mean divergence in nats.
"""

import copy
import random
from collections.abc import Mapping

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

import fedlearn
from benchmarks.measure import parser_of, print_tables, use_processors

LETTERS = "0123456789+="
ANSWERS = {f"{a:02}+{b:02}=": f"{a + b:03}" for a in range(100) for b in range(100)}
PROMPTS = random.Random(0).sample(list(ANSWERS), k=len(ANSWERS))
N_TRAINING = 8000

LORA_RANK = 4
PULL: dict[str, str | float] = {"weight_decay": 100.0, "weight_decay_towards": "start"}
WAYS = ("all weights", "all weights, pulled to the start", "LoRA")


class Tuned(msgspec.Struct, frozen=True):
    """One way of tuning."""

    way: str
    seed: int
    parameters: int
    steps: int
    right_before: float
    """Share of held-out sums that are right."""
    right_after: float
    drift_nats: float


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of tuning (default: 60)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="N", help="of runs (default: 1)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="what is compared (default: all)")
    options = parser.parse_args()
    use_processors(1)
    torch.set_num_threads(1)
    results = [tune(way, seed, options.seconds) for seed in options.seeds for way in options.ways]
    print_tables("fine_tuning", as_json=options.json, facts={"seconds": options.seconds}, results=results)
    return 0


def tune(way: str, seed: int, seconds: float) -> Tuned:
    """Tunes a student of its own."""
    student = pretrained(0.25, seed)
    before = copy.deepcopy(student)
    if way == "LoRA":
        student = with_lora(student, LORA_RANK)
    task = fedlearn.reward(
        student,
        exact,
        PROMPTS[:N_TRAINING],
        tokenizer=Letters(),
        new_tokens=3,
        batch_size=32,
        held_out=PROMPTS[N_TRAINING:],
        settings=settings_of(way),
    )
    start = torch.cat([torch.from_numpy(tensor).flatten() for tensor in task.tensors.values()]).numpy()
    accuracy = task.evaluate(start, threads=1)["reward"]
    trained = fedlearn.train(task, duration=seconds, threads=1, seed=seed, runs=None)
    load(task.model, {name: torch.from_numpy(tensor) for name, tensor in trained.weights.items()})
    return Tuned(way, seed, start.size, trained.step, accuracy, trained.figures["reward"], drift(before, task.model))


def settings_of(way: str) -> dict[str, str | float]:
    """What a way asks for beyond the usual settings of rewards."""
    common: dict[str, str | float] = {"population_limit": 128, "group_size": 32}
    if way == "LoRA":
        return {**common, "sigma": 0.04, "learning_rate": 0.01}
    return {**common, "sigma": 0.006, "learning_rate": 0.001, **(PULL if "pulled" in way else {})}


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
    """A frozen layer with the two factors of LoRA: x W + b + x A B. Source: Hu et al., arXiv 2106.09685."""

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


if __name__ == "__main__":
    raise SystemExit(main())
