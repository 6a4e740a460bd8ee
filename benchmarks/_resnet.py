"""ResNet-50 in plain torch, as torchvision lays it out; its weights come from a seed."""

import torch
from torch import nn

SEED = 20
INPUT = (1, 3, 224, 224)
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


def conv(inputs, outputs, size, stride=1):
    """A convolution without bias, and its normalisation."""
    padded = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(padded, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.first = conv(inputs, width, 1)
        self.second = conv(width, width, 3, stride)
        self.third = conv(width, 4 * width, 1)
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else conv(inputs, 4 * width, 1, stride)

    def forward(self, x):
        y = self.third(torch.relu(self.second(torch.relu(self.first(x)))))
        return torch.relu(y + self.shortcut(x))


class ResNet50(nn.Module):
    """[n, 3, h, w] to [n, 1000]; 25.6 million parameters."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 64, 7, 2)
        inputs, blocks = 64, []
        for width, count, stride in STAGES:
            for index in range(count):
                blocks.append(Bottleneck(inputs, width, stride if index == 0 else 1))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, 1000)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.stem(x)), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


def resnet50():
    """Make it with seeded weights, in eval mode."""
    torch.manual_seed(SEED)
    return ResNet50().eval().requires_grad_(False)


def image():
    """Make the seeded input."""
    return torch.randn(INPUT, generator=torch.Generator().manual_seed(SEED))
