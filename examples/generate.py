"""Generate text with a model of Llama's shape, in bf16 or fp32 or with int8 or int4 weights.

python examples/gpt.py --model llama --save bytes.safetensors    # trains a model of bytes, for real text
python examples/generate.py --weights bytes.safetensors --prompt "The import statement " --temperature 0.7
python examples/generate.py --quantize int4                      # 300M random weights, for the speed
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import common
import llama
import torch
from torch import Tensor, nn

NOISE = """The weights are random, for the speed only, so the tokens mean nothing and are not printed. For text, type:
  python examples/gpt.py --model llama --save bytes.safetensors
  python examples/generate.py --weights bytes.safetensors --prompt "The import statement " --temperature 0.7"""


class Int8Linear(nn.Module):
    """A linear layer with int8 weights and one scale per output."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        scales = weight.float().abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
        self.register_buffer("weight", (weight / scales).round().to(torch.int8))
        self.register_buffer("scales", scales[:, 0].to(weight.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        y = torch._weight_int8pack_mm(x.flatten(0, -2), self.weight, self.scales)
        return y.view(*x.shape[:-1], -1)


class Int4Linear(nn.Module):
    """A linear layer with int4 weights; each group of inputs has a scale and a zero per output."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        n, k = weight.shape
        self.group = 128 if k % 128 == 0 else 32
        if n % 16 or k % 32:
            raise SystemExit(f"int4 needs multiples of 16 outputs and of 32 inputs, not {n} and {k}")
        groups = weight.float().view(n, k // self.group, self.group)
        low, high = groups.amin(2), groups.amax(2)
        scale = (high - low).clamp(min=1e-8) / 15
        numbers = ((groups - low[..., None]) / scale[..., None]).round().clamp(0, 15).view(n, k).to(torch.uint8)
        # Number q stands for (q - 8) * scale + zero.
        pairs = torch.stack([scale, low + 8 * scale], 2).transpose(0, 1).contiguous()
        self.register_buffer("pairs", pairs.to(weight.dtype))
        if weight.device.type == "cpu":
            packed = torch._convert_weight_to_int4pack_for_cpu(numbers.int(), 2)
            self.multiply = torch._weight_int4pack_mm_for_cpu
        else:
            packed = torch._convert_weight_to_int4pack(numbers[:, ::2] << 4 | numbers[:, 1::2], 2)
            self.multiply = torch._weight_int4pack_mm
        self.register_buffer("weight", packed)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        y = self.multiply(x.flatten(0, -2), self.weight, self.group, self.pairs)
        return y.view(*x.shape[:-1], -1)


def quantize(model: nn.Module, kind: type[nn.Module]) -> None:
    """Replace every linear layer."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, kind(child.weight.detach()))


def sample(scores: Tensor, temperature: float, top_k: int) -> Tensor:
    """The next tokens (N, 1) from scores (N, vocabulary); temperature 0 takes the likeliest."""
    if temperature == 0:
        return scores.argmax(-1, keepdim=True)
    values, tokens = scores.float().topk(min(top_k, scores.shape[1]))
    return tokens.gather(1, torch.multinomial((values / temperature).softmax(-1), 1))


class Text:
    """Tokens from and to text: by the tokenizer of a folder, or else byte by byte."""

    def __init__(self, folder: Path | None) -> None:
        self.tokenizer = None
        if folder is not None and (folder / "tokenizer.json").exists():
            from transformers import AutoTokenizer

            self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.tokens: list[int] = []
        self.shown = ""

    def encode(self, text: str) -> list[int]:
        """Tokens of a text."""
        return self.tokenizer.encode(text) if self.tokenizer else list(text.encode())

    def stream(self, token: int) -> None:
        """Print what the next token adds, once its last character is whole."""
        self.tokens.append(token)
        if self.tokenizer:
            text = self.tokenizer.decode(self.tokens)
        else:  # of a larger vocabulary, only some tokens are bytes
            text = bytes(t if t < 256 else 63 for t in self.tokens).decode(errors="replace")
        if not text.endswith("\ufffd"):
            print(text[len(self.shown) :], end="", flush=True)
            self.shown = text


@torch.inference_mode()
def generate(
    model: llama.Llama, prompt: Tensor, count: int, text: Text | None, temperature: float, top_k: int
) -> tuple[float, float]:
    """Continue the prompts (N, T) and stream the first one; seconds to the first token, and per further one."""
    cache = model.new_cache(len(prompt))
    start, times, tokens = 0, [time.perf_counter()], prompt
    for _ in range(count):
        scores = model(tokens, cache, start)[:, -1]
        start += tokens.shape[1]
        tokens = sample(scores, temperature, top_k)
        first = tokens[0, 0].item()  # waits for the device
        times.append(time.perf_counter())
        if text is not None:
            text.stream(first)
    return times[1] - times[0], (times[-1] - times[1]) / max(count - 1, 1)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--device", default="netcl", help="torch device, e.g. netcl, netcl:1, cpu")
    result.add_argument("--weights", type=Path, help="safetensors file; without it, the weights are random")
    result.add_argument("--layers", type=int, default=20, help="layers of the random model")
    result.add_argument("--width", type=int, default=1024, help="width of the random model")
    result.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    result.add_argument("--quantize", choices=["none", "int8", "int4"], default="none")
    result.add_argument("--prompt", default="The ")
    result.add_argument("--tokens", type=int, default=128, help="how many to generate")
    result.add_argument("--batch", type=int, default=1, help="copies of the prompt; the first one is printed")
    result.add_argument("--temperature", type=float, default=0.0, help="0: greedy")
    result.add_argument("--top-k", type=int, default=50, help="sample from so many tokens")
    result.add_argument("--seed", type=int, default=0)
    result.add_argument("--no-stream", action="store_true", help="print the figures only")
    return result


def make_model(args: argparse.Namespace, device: torch.device) -> llama.Llama:
    """The model on the device, quantised if the arguments say so."""
    if args.weights is not None:
        model = llama.load(args.weights)
    else:
        heads = args.width // 64
        inner = args.width * 11 // 4
        with device:
            model = llama.Llama(
                llama.LlamaConfig(
                    layers=args.layers, width=args.width, inner=inner, heads=heads, kv_heads=max(1, heads // 2)
                )
            )
    model = model.to(device, getattr(torch, args.dtype)).eval()
    if args.quantize != "none":
        quantize(model, {"int8": Int8Linear, "int4": Int4Linear}[args.quantize])
    return model


def launches(device: torch.device) -> int:
    """Kernels launched so far."""
    return torch.netcl.launch_count() if device.type == "netcl" else 0


def run(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Generate, and return a table of what it took."""
    device = common.pick_device(args.device)
    torch.manual_seed(args.seed)
    model = make_model(args, device)
    text = Text(args.weights.parent if args.weights else None)
    prompt = text.encode(args.prompt)
    room = model.config.context - len(prompt)
    if not prompt or args.tokens > room or max(prompt) >= model.config.vocabulary:
        raise SystemExit(f"the prompt needs at least one token, and then there is room for {room}")
    prompt = torch.tensor([prompt] * args.batch, device=device)
    sampling = (args.temperature, args.top_k)
    generate(model, prompt, 4, None, *sampling)  # compiles the kernels
    common.reset_fallback_ops(device)
    if args.weights is None:
        print(NOISE)
        args.no_stream = True
    if not args.no_stream:
        print(args.prompt, end="")
    before = launches(device)
    first, each = generate(model, prompt, args.tokens, None if args.no_stream else text, *sampling)
    done = launches(device) - before
    print()
    weights, cache = sum(t.nbytes for t in model.state_dict().values()), model.new_cache(args.batch).nbytes
    rows = [
        ("device", f"{device} ({common.device_name(device)})"),
        ("weights", f"{args.quantize if args.quantize != 'none' else args.dtype}, {weights / 2**20:.1f} MiB"),
        ("cache", f"{cache / 2**20:.1f} MiB for {args.batch} x {model.config.context} tokens"),
        ("first token", f"{1000 * first:.1f} ms"),
        ("tokens per second", f"{args.batch / each:.1f}" if args.tokens > 1 else "one token only"),
    ]
    if device.type == "netcl":
        layers = args.tokens * model.config.layers
        fallback = common.fallback_ops(device)
        rows += [
            ("most memory in use", f"{torch.netcl.max_memory_allocated(device) / 2**20:.1f} MiB"),
            ("launches per token and layer", f"{done / layers:.1f}"),
            ("operators on the host", ", ".join(f"{k} x{v}" for k, v in fallback.items()) or "none"),
        ]
    return rows


def main() -> None:
    """Run from the command line."""
    common.print_table(run(parser().parse_args()))


if __name__ == "__main__":
    main()
