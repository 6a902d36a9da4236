"""Handwritten digits by a small convolutional network on three providers, each of which is a process.

python examples/provider.py --name node_0   # serves, and computes itself
python examples/provider.py --name node_1
python examples/provider.py --name node_2

Training begins when all of them are there. Losses, validation accuracies and the model are written by node_0. With
--seats=3 on all of them the nodes hold one model between them. Needs fedlearn[torch] and scikit-learn.
"""

import argparse
import logging

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedlearn.compat import Node, Trainer, clusterize, set_seed


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def loaders(batch_size):
    """Rows to learn from, those that are looked at after each epoch, and those that nothing was chosen by."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x = torch.tensor(images[order] / 16).float().reshape(-1, 1, 8, 8)
    whole = TensorDataset(x, torch.tensor(labels[order]))
    parts = (slice(360, None), slice(180), slice(180, 360))
    return [DataLoader(TensorDataset(*whole[part]), batch_size) for part in parts]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True, help="node_0, node_1 or node_2")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seats", type=int, default=0, help="nodes that hold one model between them")
    parser.add_argument("--port", type=int, default=55562)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    set_seed(42)
    train_loader, val_loader, test_loader = loaders(batch_size=64)
    model = cnn()
    if given.seats:
        clusterize(model=model, example_args=(torch.rand(64, 1, 8, 8),), nodes=given.seats)
    node = Node(
        name=given.name, model=model, optimizer=torch.optim.Adam, optimizer_params={"lr": 1e-3},
        criterion=F.cross_entropy,
        labels=train_loader.dataset.tensors[1], test_labels=val_loader.dataset.tensors[1],
        seats=given.seats, port=given.port,
    )  # fmt: skip
    trainer = Trainer(node=node, epochs=given.epochs, train_loader=train_loader, val_loader=val_loader, save=True)
    trainer.train()
    if node.number == 0:
        logging.info("test accuracy %.4f", trainer.evaluate(test_loader))
