"""Handwritten digits: an unmodified PyTorch module, and a loss. Needs fedlearn[torch] and scikit-learn.

python server.py --task examples/digits.py:task
python client.py ADDRESS
"""

import numpy as np
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import fedlearn

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
data = {"image": (images[order] / 16).astype(np.float32), "label": labels[order]}


def model():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def loss(model, rows):
    return F.cross_entropy(model(rows["image"]), rows["label"])


def accuracy(model, rows):
    return (model(rows["image"]).argmax(-1) == rows["label"]).float().mean()


task = fedlearn.supervised(model, loss, data, batch_size=128, metrics={"accuracy": accuracy})
