"""Train a small GPT, byte by byte, on the English text of Python's own documentation (``pydoc_data.topics``).

python examples/gpt.py                         # on the first OpenCL device
python examples/gpt.py --device cpu --csv gpt.csv --png gpt.png
python examples/gpt.py --model llama --save bytes.safetensors     # for examples/generate.py
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import common
import llama
import torch
import torch.nn.functional as F
from torch import Tensor, nn

GOAL = 2.0


@dataclass
class GPTConfig:
    """The shape of the model."""

    vocabulary: int = 256
    context: int = 128
    layers: int = 4
    heads: int = 4
    width: int = 128
    dropout: float = 0.0


class Block(nn.Module):
    """Causal self-attention and a feed-forward net, each after a layer norm and with a residual connection."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.norm1 = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.norm2 = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def attention(self, x: Tensor) -> Tensor:
        """Multi-head causal self-attention."""
        n, t, c = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        return self.out(y.transpose(1, 2).reshape(n, t, c))

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) -> (N, T, C)."""
        x = x + F.dropout(self.attention(self.norm1(x)), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout, self.training)


class GPT(nn.Module):
    """A decoder-only transformer with learned positions; the output layer shares the embedding's weight."""

    def __init__(self, config: GPTConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or GPTConfig()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, std: float = 0.06) -> None:
        """Initialise so that a model of this width learns in a few hundred steps."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # The sum of the residual branches grows with depth, so the last layer of each starts smaller (GPT-2).
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=std / math.sqrt(2 * self.config.layers) if last else std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        # Positions start as waves instead of noise: attention then finds "the byte before" in half as many steps.
        context, width = self.positions.weight.shape
        angle = torch.arange(context)[:, None] * 100.0 ** -(torch.arange(0, width, 2) / width)
        self.positions.weight.copy_(std * torch.cat([angle.sin(), angle.cos()], dim=1))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (N, T) -> scores of the next token (N, T, vocabulary)."""
        position = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(position)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Apply weight decay only to matrices, not to norms and biases."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def make_model(name: str) -> GPT | llama.Llama:
    """The GPT, or a model of bytes of Llama's shape, which examples/generate.py can run."""
    if name == "gpt":
        return GPT()
    return llama.Llama(
        llama.LlamaConfig(vocabulary=256, context=512, layers=4, heads=4, kv_heads=2, width=128, inner=384)
    )


def load_text(every: int = 10) -> tuple[Tensor, Tensor]:
    """Training and validation bytes; every tenth topic is held out.

    Topics quote each other at length, so a paragraph is kept only at its first occurrence: no validation text is in
    the training text.
    """
    from pydoc_data.topics import topics

    seen: set[str] = set()
    parts: tuple[list[str], list[str]] = ([], [])
    for number, name in enumerate(sorted(topics)):
        for paragraph in topics[name].split("\n\n"):
            key = " ".join(paragraph.split())
            if key and key not in seen:
                seen.add(key)
                parts[number % every == every - 1].append(paragraph.strip("\n"))
    train, validation = (torch.tensor(list("\n\n".join(p).encode()), dtype=torch.int64) for p in parts)
    return train, validation


def random_batches(data: Tensor, context: int, batch_size: int, seed: int) -> Iterator[common.Batch]:
    """Windows at random positions, and the same windows one byte later."""
    generator = torch.Generator().manual_seed(seed)
    window = torch.arange(context)
    while True:
        start = torch.randint(len(data) - context, (batch_size, 1), generator=generator)
        yield data[start + window], data[start + window + 1]


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross entropy in nats per byte, in fp32: cross_entropy itself would compute in the scores' dtype."""
    return F.cross_entropy(model(x).float().flatten(0, 1), y.flatten())


@torch.no_grad()
def validation_loss(
    model: nn.Module, data: Tensor, device: torch.device, amp_dtype: torch.dtype | None, batch_size: int = 16
) -> float:
    """Loss over the whole text in windows that do not overlap."""
    model.eval()
    context = GPTConfig.context
    count = (len(data) - 1) // context
    x = data[: count * context].view(count, context)
    y = data[1 : count * context + 1].view(count, context)
    total = torch.zeros((), device=device)
    for part_x, part_y in zip(x.split(batch_size), y.split(batch_size), strict=True):
        with torch.autocast(device.type, dtype=amp_dtype, enabled=amp_dtype is not None):
            loss = loss_fn(model, part_x.to(device), part_y.to(device))
        total += loss.float() * len(part_x)
    return total.item() / count


def run(args: argparse.Namespace, on_first_step: Callable[[], None] | None = None) -> common.Result:
    """Train, validate and time; shared by ``main`` and the demo."""
    device = common.pick_device(args.device)
    amp_dtype = common.pick_amp_dtype(device, args.amp)
    torch.manual_seed(args.seed)
    train_text, validation_text = load_text()
    model = make_model(args.model).to(device)
    if args.compile:
        model.compile()
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.1), lr=args.lr, betas=(0.9, 0.95))
    scheduler = common.cosine_with_warmup(optimizer, args.steps, warmup=min(30, args.steps))
    batches = common.to_device(
        random_batches(train_text, GPTConfig.context, args.batch_size, args.seed), device
    )

    common.reset_fallback_ops(device)
    start = time.perf_counter()
    log = common.train(
        model,
        batches,
        loss_fn,
        optimizer,
        steps=args.steps,
        device=device,
        amp_dtype=amp_dtype,
        name="gpt",
        clip=1.0,
        scheduler=scheduler,
        on_first_step=on_first_step,
    )
    seconds = time.perf_counter() - start
    loss = validation_loss(model, validation_text, device, amp_dtype)
    fallback = common.fallback_ops(device)
    if args.save is not None:
        llama.save(model, args.save)
    speed = common.compare_speed(model, next(batches), loss_fn, device, amp_dtype)
    return common.Result(
        "gpt", "validation loss (nats a byte)", loss, loss < GOAL, amp_dtype, log, seconds, speed, fallback
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    common.add_arguments(result, steps=300, batch_size=16, lr=4e-3)
    result.add_argument("--model", choices=["gpt", "llama"], default="gpt")
    result.add_argument("--save", type=Path, metavar="FILE", help="write the trained Llama, a safetensors file")
    return result


def main() -> None:
    """Run from the command line."""
    args = parser().parse_args()
    if args.save is not None and args.model != "llama":
        raise SystemExit("--save needs --model llama, which examples/generate.py can run")
    common.finish(run(args), common.pick_device(args.device), args)


if __name__ == "__main__":
    main()
