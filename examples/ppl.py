"""Handwritten digits on several ranks, started by torchrun: rank 0 serves and computes, every other rank joins it.

torchrun --nproc_per_node=3 examples/ppl.py --gpu=0_0_0 --epochs=2 --batch_size=40 --lr=0.001 --model_name=ppl_04

On several machines give each `--nnodes`, its `--node_rank`, and `--master_addr`. Each rank holds the whole network, and
they share the rows of each batch. With --seats=3 three ranks hold one network between them, each some of its layers.
Needs fedlearn[torch] and scikit-learn.
"""

import argparse
import os

import numpy as np
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import fedlearn
from fedlearn.compat import SharedBatch, await_seat, serve
from fedlearn.launch.gang import GangRank

HELD_OUT = 180


def model():
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10))


def loss(model, rows):
    return F.cross_entropy(model(rows["image"]), rows["label"])


def accuracy(model, rows):
    return (model(rows["image"]).argmax(-1) == rows["label"]).float().mean()


def options():
    parser = argparse.ArgumentParser(description="Digits, by a network whose layers lie on several machines.")
    parser.add_argument("--gpu", default="", help="taken, and without effect: seats compute on processors")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--model_name", default="ppl_04", help="the model is written to MODEL_NAME.safetensors")
    parser.add_argument("--seats", type=int, default=0, help="ranks that hold one network between them")
    parser.add_argument("--seed", type=int, default=0, help="of first weights, and of the order of rows")
    parser.add_argument("--port", type=int, default=55561, help="of rank 0, for activations and losses")
    return parser.parse_args()


def main():
    given, place = options(), GangRank.of(os.environ)
    host = "127.0.0.1" if place.is_on_one_machine else place.master
    if place.rank > 0:
        raise SystemExit(await_seat(host, given.port, name=f"rank-{place.rank}"))
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    rows = {"image": (images[order] / 16).astype(np.float32), "label": labels[order]}
    data = {name: column[HELD_OUT:] for name, column in rows.items()}
    held_out = {name: column[:HELD_OUT] for name, column in rows.items()}
    batch = SharedBatch.of(given.batch_size, place.size)
    task = fedlearn.supervised(
        model, loss, data, held_out=held_out, batch_size=batch.part_size, metrics={"loss": loss, "accuracy": accuracy}
    )
    steps_per_epoch = batch.steps_of(len(data["label"]))

    def evaluated(step, train_loss, figures, _):
        print(
            f"epoch {step // steps_per_epoch}: loss {train_loss:.4f}, "
            f"evaluation loss {figures['loss']:.4f}, accuracy {figures['accuracy']:.3f}",
            flush=True,
        )

    trained = serve(
        task, host=host if place.is_on_one_machine else "0.0.0.0", port=given.port, volunteers=1, seats=given.seats,
        gather=0 if given.seats else place.size, steps=given.epochs * steps_per_epoch, every=steps_per_epoch,
        looked=evaluated, optimizer="adam", learning_rate=given.lr, learning_rate_schedule="constant", seed=given.seed,
        **batch.settings,
    )  # fmt: skip
    print(f"wrote {trained.export(f'{given.model_name}.safetensors')}")


if __name__ == "__main__":
    main()
