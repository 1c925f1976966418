"""Plain PyTorch models of the usual kinds, small enough to read: ResNet-18, an LSTM classifier, the GPT."""

from __future__ import annotations

import torch.nn.functional as F
from gpt import GPT, GPTConfig
from torch import Tensor, nn

__all__ = ["GPT", "GPTConfig", "LSTMClassifier", "ResNet18", "ResidualBlock"]


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norm and a shortcut, which is a 1x1 convolution if the shape changes."""

    def __init__(self, channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) -> (N, out_channels, H / stride, W / stride)."""
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


class ResNet18(nn.Module):
    """The ResNet-18 of He et al. (2015)."""

    def __init__(self, classes: int = 10, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks = []
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        for before, after in zip(widths, widths[1:], strict=False):
            blocks += [ResidualBlock(before, after, stride=after // before), ResidualBlock(after, after)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """(N, channels, H, W) -> (N, classes)."""
        x = self.blocks(self.stem(images))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class LSTMClassifier(nn.Module):
    """Sequences of token numbers to class scores: embedding, LSTM, and a linear layer on the last step."""

    def __init__(
        self, vocabulary: int = 100, embedding: int = 32, hidden: int = 64, layers: int = 2, classes: int = 5
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T) -> (N, classes)."""
        output, _ = self.lstm(self.embedding(tokens))
        return self.head(output[:, -1])
