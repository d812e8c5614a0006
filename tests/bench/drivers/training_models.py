"""The models that the suite `torch` trains, their inputs and their losses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 10


def mlp() -> nn.Module:
    """21 layers of 1,000 neurons: 21 M parameters in 42 tensors."""
    layers: list[nn.Module] = []
    for _ in range(21):
        layers += [nn.Linear(1000, 1000), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Transformer(nn.Module):
    """12 encoder layers of width 256 and a classifier: 9.5 M parameters in 146 tensors."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.head = nn.Linear(256, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(tokens).mean(dim=1))


class Bottleneck(nn.Module):
    """The block of K. He, X. Zhang, S. Ren, J. Sun: Deep residual learning for image recognition,
    CVPR 2016."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.body(images) + self.shortcut(images))


def resnet50() -> nn.Module:
    """25.6 M parameters in 161 tensors."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*layers)


# A model, its input for one step of one rank, and how many classes it tells apart.
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "mlp": (mlp, (32, 1000), 1000),
    "transformer": (Transformer, (4, 32, 256), CLASSES),
    "resnet50": (resnet50, (8, 3, 32, 32), 1000),
}


class Training:
    """One rank's model with its data; alike on all ranks, but for the data."""

    def __init__(self, name: str, rank: int) -> None:
        make, shape, classes = MODELS[name]
        torch.manual_seed(1)
        self.model = make()
        # Small steps: losses stay finite over thousands of them.
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-5, momentum=0.9)
        generator = torch.Generator().manual_seed(2 + rank)
        self.inputs = torch.randn(shape, generator=generator)
        self.labels = torch.randint(classes, shape[:1], generator=generator)

    def counts(self) -> list[int]:
        return [parameter.numel() for parameter in self.model.parameters()]
