"""What a reward without gradient makes of a pretrained language model, and what it forgets meanwhile.

A small GPT is pretrained by backpropagation until it answers a quarter of two-digit sums, then tuned for some seconds
on one processor by whether greedy decoding writes the right answer: over all weights, over LoRA's factors, and over
all weights with a pull towards the start. A fifth of the sums is never trained on and measured. Drift is how far the
model's expectations in texts that are no sums move: the mean divergence in nats.
"""

import argparse
import copy

import msgspec
import torch
from measure import Machine, describe_machine, print_report, use_processors
from sums import N_TRAINING, PROMPTS, Letters, drift, exact, load, pretrained, with_lora

import fedlearn

LORA_RANK = 4
PULL: dict[str, str | float] = {"weight_decay": 100.0, "weight_decay_towards": "start"}
WAYS = ("all weights", "all weights, pulled to the start", "LoRA")


class Tuned(msgspec.Struct, frozen=True):
    """One way of tuning."""

    way: str
    seed: int
    parameters: int
    steps: int
    before: float
    """Share of held-out sums that are right."""
    after: float
    drift_nats: float


class Report(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    machine: Machine
    seconds: float
    results: list[Tuned]


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of tuning (default: 60)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="N", help="of runs (default: 1)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="what is compared (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    use_processors(1)
    torch.set_num_threads(1)
    results = [tune(way, seed, options.seconds) for seed in options.seeds for way in options.ways]
    report = Report(describe_machine(), options.seconds, results)
    print_report(report, lambda: table(report), as_json=options.json)
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


def table(report: Report) -> str:
    """For people."""
    lines = [f"{report.machine.processor}; {report.seconds:g} s of tuning on one processor"]
    lines += [f"{'way':<34} {'seed':>4} {'parameters':>10} {'steps':>6} {'before':>7} {'after':>7} {'drift':>7}"]
    lines += [
        f"{r.way:<34} {r.seed:>4} {r.parameters:>10} {r.steps:>6} {r.before:>7.3f} {r.after:>7.3f} {r.drift_nats:>7.3f}"
        for r in report.results
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
