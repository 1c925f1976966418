"""``python -m benchmarks small [WORDS ...]``: steps so small that the host's work and wake-ups take most of the time.

The targets are times of torch CPU's eager mode, which has no command to hand to another thread.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from . import report
from .harness import Case, Result, Run, add_options, measure
from .operators import of, rand


@dataclass
class Small:
    """A case, and the most that it may take on Intel's runtime and on PoCL, in times of torch CPU; None: no target."""

    case: Case
    most: tuple[float, float] | None = None


def waited(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> Callable[[str], Run]:
    """A `make` for a function of random operands, whose result the host reads each time."""

    def make(device: str) -> Run:
        operands = [rand(*shape, device=device) for shape in shapes]
        return lambda: function(*operands).item()

    return make


def index(device: str) -> Run:
    """16 rows of a table of 64 x 64."""
    table, rows = rand(64, 64, device=device), torch.arange(0, 64, 4).to(device)
    return lambda: table[rows]


def mlp_step(device: str) -> Run:
    """Forward, backward and AdamW of 64-128-10 on 32 rows; the loss is read."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    x, y = torch.randn(32, 64).to(device), torch.randint(10, (32,)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()

    return run


def encoder(length: int, causal: bool) -> Callable[[str], Run]:
    """A `make` for 4 layers of width 256 at batch 1, by torch's fast path of encoder layers."""

    def make(device: str) -> Run:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval().to(device)
        x = torch.randn(1, length, 256).to(device)
        mask = nn.Transformer.generate_square_subsequent_mask(length).to(device) if causal else None

        @torch.no_grad()
        def run() -> float:
            return model(x, mask, is_causal=causal)[0, -1, 0].item()

        return run

    return make


def decoder(device: str) -> Run:
    """One token through 4 decoder layers of width 256, with 16 tokens of memory."""
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(256, 4, 1024, batch_first=True)
    model = nn.TransformerDecoder(layer, 4).eval().to(device)
    x, memory = torch.randn(1, 1, 256).to(device), torch.randn(1, 16, 256).to(device)

    @torch.no_grad()
    def run() -> float:
        return model(x, memory)[0, -1, 0].item()

    return run


def generate(beams: int, tokens: int = 16) -> Callable[[str], Run]:
    """A `make` for `tokens` new tokens of a Llama of 2 layers and width 64 from the transformers package."""

    def make(device: str) -> Run:
        from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2)  # fmt: skip
        model = LlamaForCausalLM(config).eval().to(device)
        how = GenerationConfig(max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, num_beams=beams,
                               pad_token_id=0, eos_token_id=1, bos_token_id=2)  # fmt: skip
        prompt = torch.arange(3, 11).unsqueeze(0).to(device)
        mask = torch.ones_like(prompt)
        return lambda: model.generate(prompt, attention_mask=mask, generation_config=how)

    return make


def cases() -> Iterator[Small]:
    """The cases in the order of the table."""
    yield Small(Case("small/add_16_enqueue", of(torch.add, (16,), (16,)), enqueue=True), (2.0, 2.5))
    yield Small(Case("small/item", waited(lambda x: x, (1,))))
    yield Small(Case("small/add_sum_item", waited(lambda x, y: (x + y).sum(), (16,), (16,))), (3.0, 4.0))
    yield Small(Case("small/index", index))
    yield Small(Case("small/layer_norm_8x64", of(lambda x: F.layer_norm(x, [64]), (8, 64))))
    yield Small(Case("small/linear_8x64x64", of(F.linear, (8, 64), (64, 64), (64,))), (1.0, 1.0))
    yield Small(Case("small/mlp_step", mlp_step), (1.0, 1.0))
    for name, make in {
        "encoder_1": encoder(1, False),
        "encoder_16": encoder(16, False),
        "encoder_causal_16": encoder(16, True),
        "decoder_1": decoder,
    }.items():
        yield Small(Case(f"small/{name}", make), (1.1, 1.3))
    yield Small(Case("small/generate_beam1", generate(1)), (2.0, 2.5))
    yield Small(Case("small/generate_beam4", generate(4)), (2.0, 2.5))


def row(small: Small, result: Result, pocl: bool) -> dict[str, object]:
    """The cells of a case."""
    most = small.most[pocl] if small.most else None
    times = result.netcl.seconds / result.cpu.seconds if result.cpu else None
    return {
        "name": result.name,
        "netcl_us": result.netcl.seconds * 1e6,
        "cpu_us": result.cpu.seconds * 1e6 if result.cpu else None,
        "times_cpu": times,
        "target": most,
        "met": times <= most if times is not None and most is not None else None,
        "launches": result.launches,
        "waits": result.waits,
        "fallbacks": result.fallbacks,
    }


def table(rows: list[dict], facts: dict[str, object]) -> str:
    """The results as Markdown."""

    def number(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:.{digits}f}"

    lines = [f"# Small steps: {facts['device']}, {facts['platform']}", ""]
    lines += [f"- {key}: {', '.join(value) if isinstance(value, list) else value}" for key, value in facts.items()]
    judged = [r["met"] for r in rows if r["met"] is not None]
    lines += ["", f"Medians. Targets: {sum(judged)} of {len(judged)} met.", ""]
    lines += ["| case | netcl, µs | torch CPU, µs | times torch CPU | target | launches | waits |", "|" + "---|" * 7]
    for r in rows:
        name = r["name"] + (" (on the host: " + ", ".join(r["fallbacks"]) + ")" if r["fallbacks"] else "")
        target = "" if r["target"] is None else f"≤ {r['target']:g}"
        target += {True: "", False: ": missed", None: ""}[r["met"]]
        cells = [name, number(r["netcl_us"], 1), number(r["cpu_us"], 1), number(r["times_cpu"], 2), target]
        lines.append("| " + " | ".join([*cells, f"{r['launches']:g}", f"{r['waits']:g}"]) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks small", description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="cases whose name contains one of these")
    add_options(parser, 11, 30.0)
    args = parser.parse_args(arguments)
    wanted = [s for s in cases() if not args.only or any(word in s.case.name for word in args.only)]
    if args.list:
        print(*(s.case.name for s in wanted), sep="\n")
        return 0
    if not wanted:
        print("no case of that name; see --list", file=sys.stderr)
        return 1
    facts = report.environment()
    rows = []
    for small in (bar := tqdm(wanted, disable=None)):
        bar.set_description(small.case.name)
        result = measure(small.case, args.samples, args.sample_ms / 1e3, compare=not args.no_cpu)
        rows.append(row(small, result, report.Run(facts).pocl))
    report.write(args, table(rows, facts), facts, results=rows)
    return 0
