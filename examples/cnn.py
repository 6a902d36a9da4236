"""Handwritten digits by a small convolutional network, which can be split. Needs fedlearn[torch] and scikit-learn.

python server.py --task examples/cnn.py:task
python client.py ADDRESS
fedlearn plan examples/cnn.py --nodes node_configs.json
"""

import numpy as np
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import fedlearn

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
data = {"image": (images[order] / 16).reshape(-1, 1, 8, 8).astype(np.float32), "label": labels[order]}


def model():
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


def loss(model, rows):
    return F.cross_entropy(model(rows["image"]), rows["label"])


def accuracy(model, rows):
    return (model(rows["image"]).argmax(-1) == rows["label"]).float().mean()


task = fedlearn.supervised(model, loss, data, batch_size=64, metrics={"accuracy": accuracy})
