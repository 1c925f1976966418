"""Draws ``results/speed.svg``: netcl beside torch CPU in families of cases, from two tables of results.

    python -m benchmarks.chart benchmarks/results/epyc-avx512bf16-intel.md benchmarks/results/epyc-avx512bf16-pocl.md
"""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path

# A family's title and the beginnings of its cases' names. Cases in 16-bit floats are left out: torch CPU computes some
# of them slowly, and the ratios would say little.
FAMILIES = {
    "element-wise": ("elementwise/",),
    "reductions": ("reduction/",),
    "softmax, layer norm": ("softmax/", "layer_norm/"),
    "matrix products": ("gemm/float32", "gemm/skinny", "gemm/batched"),
    "convolutions": ("convolution/",),
    "attention": ("attention/",),
    "indexing, sorting": ("indexing/", "sort/"),
    "random numbers": ("random/",),
    "optimizers": ("optimizer/",),
    "training, MLP": ("training/mlp/",),
    "training, ResNet-18": ("training/resnet18_224/",),
    "training, GPT": ("training/gpt/",),
}
COLOURS = ("#3b82f6", "#f59e0b")
TEXT = "#808890"  # readable on white and on black
LEFT, WIDTH, ROW, TOP = 150, 420, 34, 58
LEAST, MOST = 0.5, 16  # ends of the axis, which is logarithmic


def ratios(table: Path) -> dict[str, float]:
    """The column `ratio` by case: torch CPU's time divided by netcl's."""
    rows = [line.split("|") for line in table.read_text().splitlines() if line.startswith("| ")]
    column = [word.strip() for word in rows[0]].index("ratio")
    return {row[1].strip(): float(row[column]) for row in rows[1:] if row[column].strip()}


def families(table: Path) -> list[float]:
    """The geometric mean of each family's ratios; raises StatisticsError if a family has no case."""
    found = {name: ratio for name, ratio in ratios(table).items() if "float16" not in name}
    return [
        statistics.geometric_mean(ratio for name, ratio in found.items() if name.startswith(beginnings))
        for beginnings in FAMILIES.values()
    ]


def platform(table: Path) -> str:
    """The name of the OpenCL runtime that was measured."""
    text = table.read_text()
    return "PoCL" if "Portable" in text else text.partition("- platform: ")[2].partition("\n")[0]


def x(ratio: float) -> float:
    """The horizontal position of a ratio."""
    return LEFT + WIDTH * math.log(ratio / LEAST) / math.log(MOST / LEAST)


def chart(tables: list[Path]) -> str:
    """The picture, as SVG."""
    height = TOP + ROW * len(FAMILIES) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 60} {height}" '
        f'font-family="sans-serif" font-size="13" fill="{TEXT}">',
        f'<text x="{LEFT}" y="16">times as fast as torch on the CPU, fp32, two cores</text>',
    ]
    for i, table in enumerate(tables):
        left = LEFT + 130 * i
        parts.append(f'<rect x="{left}" y="26" width="10" height="10" fill="{COLOURS[i]}"/>')
        parts.append(f'<text x="{left + 15}" y="35">{platform(table)}</text>')
    for tick in (0.5, 1, 2, 4, 8, 16):
        width = 1.5 if tick == 1 else 0.4
        parts.append(f'<path d="M{x(tick):.1f} {TOP}V{height - 8}" stroke="{TEXT}" stroke-width="{width}"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{TOP - 5}" text-anchor="middle" font-size="11">{tick}</text>')
    values = [families(table) for table in tables]
    for row, title in enumerate(FAMILIES):
        top = TOP + ROW * row + 6
        parts.append(f'<text x="{LEFT - 8}" y="{top + 15}" text-anchor="end">{title}</text>')
        for i in range(len(tables)):
            start, end = sorted((x(1), x(min(max(values[i][row], LEAST), MOST))))
            y = top + 11 * i
            parts.append(f'<rect x="{start:.1f}" y="{y}" width="{end - start:.1f}" height="10" fill="{COLOURS[i]}"/>')
            parts.append(f'<text x="{end + 4:.1f}" y="{y + 9}" font-size="10">{values[i][row]:.2g}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> int:
    """Run the command line; returns the exit status."""
    tables = [Path(name) for name in sys.argv[1:]]
    if len(tables) != len(COLOURS):
        print(__doc__, file=sys.stderr)
        return 2
    (tables[0].parent / "speed.svg").write_text(chart(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
