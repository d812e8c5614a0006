"""scikit-learn's handwritten digits and a small network. Put your own in their place."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

# 1440 images can be divided among 2, 3, 4, 5, 6 or 8 ranks.
TRAINING_IMAGES = 1440


def load() -> tuple[TensorDataset, TensorDataset]:
    """Pairs of image [1, 8, 8] in 0..1 and label: 1440 to train with, 357 to test with."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(7))
    train, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def make_model() -> nn.Module:
    """A small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """The share of images that `model` takes for what they are."""
    images, labels = data.tensors
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).sum()
    model.train()
    return float(right) / len(labels)
