"""What a reward without gradient makes of a pretrained language model, and what it forgets meanwhile.

A small GPT is pretrained by backpropagation until it answers a quarter of two-digit sums, then tuned for some seconds
on one processor by whether it writes the right answer: over all weights, over LoRA's factors, and over all weights
with a pull towards the start, by gradients of how likely texts are; over all weights by losses of perturbed ones; and
by a loop of PyTorch's, which has the same gradients, rate and seconds.
A fifth of the sums is never trained on and measured, by greedy decoding. Drift is how far the model's expectations in
texts that are no sums move: the mean divergence in nats.
"""

import copy
import random
import time

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

import fedlearn
from benchmarks.measure import parser_of, print_tables, use_processors
from fedlearn.tasks.task import flat_weights
from fedlearn.tasks.torch.reward import TEXTS_PER_PROMPT

LETTERS = "0123456789+="
ANSWERS = {f"{a:02}+{b:02}=": f"{a + b:03}" for a in range(100) for b in range(100)}
PROMPTS = random.Random(0).sample(list(ANSWERS), k=len(ANSWERS))
N_TRAINING = 8000

N_NEW = 3

RATE = 0.00015
"""The rate that runs choose for these students."""
LORA_RANK, LORA_RATE = 4, 0.001
PULL: dict[str, str | float] = {"weight_decay": 100.0, "weight_decay_towards": "start"}
BY_LOSSES: dict[str, str | float] = {
    "sigma": 0.006,
    "learning_rate": 0.001,
    "population_limit": 128,
    "group_size": 32,
}
BY_PYTORCH = "PyTorch alone"
WAYS = ("all weights", "all weights, pulled to the start", "LoRA", "all weights, by losses", BY_PYTORCH)


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
        new_tokens=N_NEW,
        batch_size=32 if "losses" in way else 8,
        held_out=PROMPTS[N_TRAINING:],
        settings=settings_of(way),
    )
    before_all = flat_weights(task.tensors)
    accuracy = task.evaluate(before_all, threads=1)["reward"]
    if way == BY_PYTORCH:
        steps = in_pytorch(student, seed, seconds)
        weights = np.concatenate([each.detach().numpy().ravel() for each in task.parameters.values()])
    else:
        trained = fedlearn.train(task, duration=seconds, threads=1, seed=seed, runs=None)
        steps, weights = trained.step, flat_weights(trained.weights)
    after = task.evaluate(weights, threads=1)["reward"]
    return Tuned(way, seed, before_all.size, steps, accuracy, after, drift(before, task.model))


def in_pytorch(student: GPT2LMHeadModel, seed: int, seconds: float) -> int:
    """Tunes a student by PyTorch's Adam, whose rate falls in the second half, as in a run; gives the steps taken."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(student.parameters(), lr=RATE)
    n_prompts, length = 8, len(PROMPTS[0])
    started, steps = time.perf_counter(), 0
    while (share := (time.perf_counter() - started) / seconds) < 1.0:
        numbers = torch.randint(N_TRAINING, (n_prompts,), generator=generator).tolist()
        prompts = [PROMPTS[number] for number in numbers for _ in range(TEXTS_PER_PROMPT)]
        texts = torch.tensor([Letters.encode(prompt) for prompt in prompts])
        with torch.no_grad():
            for _ in range(N_NEW):
                likely = student(texts).logits[:, -1].softmax(-1)
                texts = torch.cat((texts, torch.multinomial(likely, 1, generator=generator)), 1)
        written = texts[:, length:]
        rewards = torch.tensor(
            [exact(prompt, Letters.decode(text)) for prompt, text in zip(prompts, written.tolist(), strict=True)]
        ).view(n_prompts, TEXTS_PER_PROMPT)
        advantages = (rewards - rewards.mean(1, keepdim=True)) * TEXTS_PER_PROMPT / (TEXTS_PER_PROMPT - 1)
        logits = student(texts[:, :-1]).logits[:, length - 1 :]
        likely = logits.log_softmax(-1).gather(2, written[..., None]).sum((1, 2))
        optimizer.zero_grad()
        loss = -(advantages.flatten() * likely).mean()
        loss.backward()
        optimizer.param_groups[0]["lr"] = RATE * min(2.0 * (1.0 - share), 1.0)
        optimizer.step()
        steps += 1
    return steps


def settings_of(way: str) -> dict[str, str | float]:
    """What a way asks for beyond what a run chooses."""
    if "losses" in way:
        return BY_LOSSES
    if way == "LoRA":
        return {"learning_rate": LORA_RATE}
    return PULL if "pulled" in way else {}


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


if __name__ == "__main__":
    raise SystemExit(main())
