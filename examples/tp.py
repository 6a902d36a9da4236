"""A character model on several ranks, started by torchrun: rank 0 serves and computes, every other rank joins it.

torchrun --nproc_per_node=2 examples/tp.py --epochs=4 --batch_size=50 --lr=0.01 --model_name=tp_02
torchrun --nproc_per_node=2 examples/tp.py --check

Each rank holds the whole model, and they share the rows of each batch. With --shards=2 the ranks of a crew hold some
rows each of the embedding and of the head, which is tied to it, and the first the layers between, too. `--check` trains
some steps so, once more in one process that holds all rows, and compares losses and digests. Needs fedlearn[torch].
"""

import argparse
import inspect
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import fedlearn
from fedlearn.compat import SharedBatch, await_seat, serve
from fedlearn.launch.gang import GangRank

CONTEXT = 8
WIDTH = 32
STEPS_PER_EPOCH = 25

text = inspect.getsource(argparse)
characters = sorted(set(text))
codes = np.array([characters.index(c) for c in text])
windows = np.lib.stride_tricks.sliding_window_view(codes, CONTEXT + 1)


class Characters(nn.Module):
    """The next character from some before it; what reads them also writes it."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(characters), WIDTH)
        self.hidden = nn.Linear(CONTEXT * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, len(characters), bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, before):
        return self.head(torch.tanh(self.hidden(self.embedding(before).flatten(1))))


def loss(model, rows):
    return F.cross_entropy(model(rows["text"][:, :-1]), rows["text"][:, -1])


def options():
    parser = argparse.ArgumentParser(description="Characters, by a network whose vocabulary lies on several machines.")
    parser.add_argument("--gpu", default="", help="taken, and without effect: seats compute on processors")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=50)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--model_name", default="tp_02", help="the model is written to MODEL_NAME.safetensors")
    parser.add_argument("--shards", type=int, default=0, help="ranks of a crew that share a vocabulary")
    parser.add_argument("--port", type=int, default=55562, help="of rank 0, for activations and losses")
    parser.add_argument("--check", type=int, nargs="?", const=3, default=0, metavar="STEPS",
                        help="compare so many steps of all ranks with those of one (default: 3)")  # fmt: skip
    return parser.parse_args()


def main():
    given, place = options(), GangRank.of(os.environ)
    host = "127.0.0.1" if place.is_on_one_machine else place.master
    if place.rank > 0:
        raise SystemExit(await_seat(host, given.port, name=f"rank-{place.rank}"))
    shards = given.shards or (place.size if given.check else 0)
    batch = SharedBatch.of(given.batch_size, place.size)
    held_out, data = {"text": windows[::10].copy()}, {"text": np.delete(windows, np.s_[::10], axis=0)}
    task = fedlearn.supervised(
        Characters, loss, data, held_out=held_out, batch_size=batch.part_size, metrics={"loss": loss}
    )
    host = host if place.is_on_one_machine else "0.0.0.0"
    settings = {
        "steps": given.check or given.epochs * STEPS_PER_EPOCH, "learning_rate": given.lr, "optimizer": "adam",
        "learning_rate_schedule": "constant", **batch.settings,
    }  # fmt: skip

    def evaluated(step, train_loss, figures, _):
        print(
            f"epoch {step // STEPS_PER_EPOCH}: loss {train_loss:.4f}, evaluation loss {figures['loss']:.4f}", flush=True
        )

    trained = serve(
        task, host=host, port=given.port, volunteers=1, every=STEPS_PER_EPOCH, looked=evaluated,
        **({"seats": shards, "shards": shards} if shards else {"gather": place.size}), **settings,
    )  # fmt: skip
    crews = f"{place.size // shards} crews of {shards} shards" if shards else f"{place.size} ranks with the whole model"
    print(f"{crews}; digest {trained.digest} after step {trained.step}")
    if given.check:
        one = serve(task, host=host, port=given.port, volunteers=1, seats=1, shards=shards, **settings)
        largest = np.max(np.abs(np.array(trained.losses) - np.array(one.losses)))
        print(f"largest difference of losses from one process: {largest:g}; its digest is {one.digest}")
        sys.exit(trained.digest != one.digest)
    print(f"wrote {trained.export(f'{given.model_name}.safetensors')}")


if __name__ == "__main__":
    main()
