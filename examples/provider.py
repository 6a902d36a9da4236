"""Handwritten digits, split over three providers: each is a process that holds a part of the model.

python examples/provider.py --name node_0   # serves, and is a seat itself
python examples/provider.py --name node_1
python examples/provider.py --name node_2

Losses, validation accuracies and the fused model are written by node_0. Needs fedlearn[torch] and scikit-learn.
"""

import argparse
import logging
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_model
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fedlearn
from fedlearn.compat import await_seat, clusterize, serve, set_seed, settings_of


class Node:
    """One provider: the first serves, the others join it, and each holds a part of the model."""

    def __init__(
        self, *, name, model, optimizer, criterion, labels, test_labels, optimizer_params=None, nodes=3,
        host="127.0.0.1", port=55562, **settings,
    ):  # fmt: skip
        self.name, self.number = name, int(name.removeprefix("node_"))
        self.model, self.criterion = model, criterion
        self.labels, self.test_labels = labels, test_labels
        self.nodes, self.host, self.port = nodes, host, port
        self.settings = {**settings_of(optimizer, optimizer_params or {}), **settings}


class Trainer:
    """Trains for some epochs, each of as many steps as there are batches; `on_epoch` is for subclasses."""

    def __init__(self, *, node, epochs, train_loader, val_loader, folder="."):
        self.node, self.epochs, self.folder = node, epochs, Path(folder)
        self.steps_per_epoch = len(train_loader)
        self.task = fedlearn.supervised(
            node.model,
            lambda model, rows: node.criterion(model(rows["x"]), rows["label"]),
            self.rows(train_loader, node.labels),
            held_out=self.rows(val_loader, node.test_labels),
            batch_size=train_loader.batch_size,
            metrics={"accuracy": lambda model, rows: (model(rows["x"]).argmax(-1) == rows["label"]).float().mean()},
        )
        self.figures = None

    @staticmethod
    def rows(loader, labels):
        return {"x": torch.stack([loader.dataset[row][0] for row in range(len(loader.dataset))]), "label": labels}

    def train(self):
        node = self.node
        if node.number > 0:
            return await_seat(node.host, node.port, name=node.name)
        trained = serve(
            self.task, host=node.host, port=node.port, seats=node.nodes, volunteers=1, every=self.steps_per_epoch,
            looked=self.looked, steps=self.epochs * self.steps_per_epoch, **node.settings,
        )  # fmt: skip
        self.figures = trained.figures
        node.model.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in trained.weights.items()})
        return 0

    def looked(self, step, loss, figures, _):
        self.on_epoch(step // self.steps_per_epoch, loss, figures["accuracy"])

    def on_epoch(self, epoch, loss, accuracy):
        logging.info("epoch %d: loss %.4f, validation accuracy %.4f", epoch, loss, accuracy)
        for name, figure in (("losses", loss), ("val_accuracies", accuracy)):
            with (self.folder / f"{name}.txt").open("a" if epoch > 1 else "w") as file:
                file.write(f"{figure}\n")

    @torch.no_grad()
    def evaluate(self, loader=None):
        """The accuracy of the fused model, on other rows if they are given; None on nodes that hold a part only."""
        if loader is None or self.figures is None:
            return self.figures and self.figures["accuracy"]
        found = [(self.node.model(x).argmax(-1) == label).float() for x, label in loader]
        return torch.cat(found).mean().item()


def loaders(batch_size):
    """Rows to learn from, those that are looked at after each epoch, and those that nothing was chosen by."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    whole = TensorDataset(torch.tensor(images[order] / 16).float(), torch.tensor(labels[order]))
    parts = (slice(360, None), slice(180), slice(180, 360))
    return [DataLoader(TensorDataset(*whole[part]), batch_size) for part in parts]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True, help="node_0, node_1 or node_2")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--port", type=int, default=55562)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    set_seed(42)
    train_loader, val_loader, test_loader = loaders(batch_size=128)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10))
    clusterize(model=model, example_args=(torch.rand(128, 64),), nodes=3)
    node = Node(
        name=given.name, model=model, optimizer=torch.optim.Adam, optimizer_params={"lr": 0.02},
        criterion=F.cross_entropy, labels=train_loader.dataset.tensors[1], test_labels=val_loader.dataset.tensors[1],
        port=given.port, sigma=0.05, group_size=64, population_limit=256, time_per_step=60.0,
    )  # fmt: skip
    trainer = Trainer(node=node, epochs=given.epochs, train_loader=train_loader, val_loader=val_loader)
    trainer.train()
    if node.number == 0:
        logging.info("test accuracy %.4f", trainer.evaluate(test_loader))
        save_model(node.model, "fused.safetensors")
