"""The page of gpu.py's results, in Markdown."""

from __future__ import annotations

import json
import re

LAST_LINES = 12
ROW = '{"name"'  # a result, as JSON
BEGIN = '{"begin"'  # what a case prints before it runs


def rows_of(printed: str) -> list[dict]:
    """The results that a stage has printed."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith(ROW) and line.endswith("}")]


def seconds(value: float | None) -> str:
    """A time in a unit that suits it."""
    if not value:
        return ""
    unit, factor = ("s", 1) if value >= 1 else ("ms", 1e3) if value >= 1e-3 else ("µs", 1e6)
    return f"{value * factor:.3g} {unit}"


def rate(row: dict, taken: float | None) -> str:
    """TFLOP/s, or GB/s of a case that only moves bytes."""
    if not taken:
        return ""
    if row["flops"]:
        return f"{row['flops'] / taken * 1e-12:.3g} TFLOP/s"
    return f"{row['bytes'] / taken * 1e-9:.3g} GB/s" if row["bytes"] else ""


def timings(rows: list[dict]) -> list[str]:
    """A table of the cases that a stage has timed."""
    titles = ["case", "netcl", "", "torch CUDA", "", "netcl / CUDA", "torch CPU", "launches"]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for row in rows:
        if "problem" in row:
            lines.append(f"| {row['name']} | {row['problem']} | | | | | | |")
            continue
        own, cuda = row["netcl"]["seconds"], row.get("cuda")
        cpu = (row["cpu"] or {}).get("seconds")
        cells = [
            row["name"], seconds(own), rate(row, own), seconds(cuda) or row.get("cuda_problem", ""), rate(row, cuda),
            f"{own / cuda:.2f}" if cuda else "", seconds(cpu), f"{row['launches']:g}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def facts(rows: list[dict]) -> list[str]:
    """A table of what a stage has found."""
    cells = [(row["name"], row.get("problem") or row["value"]) for row in rows]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in cells)]


def operator_times(row: dict) -> list[str]:
    """Where the time of a step goes, on both devices side by side."""
    lines = [f"### {row['name']}", ""]
    for which in ("operators", "kernels"):
        columns = [row[f"{device}_{which}"] for device in ("netcl", "cuda")]
        if not any(columns):
            continue
        lines += [f"| netcl {which} | calls | ms | torch CUDA {which} | calls | ms |", "|---|---|---|---|---|---|"]
        for i in range(max(map(len, columns))):
            both = [column[i] if i < len(column) else ("", "", "") for column in columns]
            cells = [c if isinstance(c, str) else f"{c:.3g}" for entry in both for c in entry]
            lines.append("| " + " | ".join(cell.replace("|", "/")[:70] for cell in cells) + " |")
        lines.append("")
    return lines


def programs(rows: list[dict]) -> list[str]:
    """How many programs of each family were right, which were not, and which torch itself refuses."""
    families: dict[str, list[dict]] = {}
    refused = [row for row in rows if row.get("refused")]
    for row in [row for row in rows if row not in refused]:
        families.setdefault(row["family"], []).append(row)
    lines = ["| family | right | of |", "|---|---|---|"]
    lines += [f"| {name} | {sum(not r['wrong'] for r in group)} | {len(group)} |" for name, group in families.items()]
    lines += ["", *(f"- {row['name']}: {row['wrong']}" for row in rows if row["wrong"])]
    return lines + [f"- {row['name']} was not compared; torch: {row['refused']}" for row in refused]


def tables(rows: list[dict]) -> list[str]:
    """The rows of each kind, in tables."""
    kinds = (
        (timings, [r for r in rows if "netcl" in r or set(r) == {"name", "problem"}]),
        (facts, [r for r in rows if "value" in r]),
        (programs, [r for r in rows if "family" in r]),
    )
    lines = [line for make, group in kinds if group for line in [*make(group), ""]]
    return lines + [line for row in rows if "netcl_operators" in row for line in operator_times(row)]


def tests(printed: list[str]) -> list[str]:
    """How many tests ended how, and which failed, even if pytest was stopped before it could sum up."""
    end = r"(PASSED|SKIPPED|FAILED|ERROR)\b"
    found = [re.search(rf"^\[gw\d+\].* {end}|::\S+ {end}", line) for line in printed]  # of several processes, of one
    ends = [match[1] or match[2] for match in found if match]
    counts = ", ".join(f"{ends.count(end)} {end.lower()}" for end in dict.fromkeys(ends))
    told = r"\[netcl\]|.*crashed while running|!+ .*the time is over"
    said = [line for line in printed if re.match(told, line)]
    return [counts or "none ended", *said]


def section(name: str, stage: dict) -> list[str]:
    """The part of the page for a stage."""
    problem = "; ".join(stage["problems"])
    lines = [f"## {name}: {problem or 'ok'} ({stage['seconds']:.0f} s)", ""]
    if stage["rows"]:
        lines += [*tables(stage["rows"]), ""]
    text = stage["printed"].strip().splitlines()
    if any("::" in line for line in text):
        text = [*tests(text), *(text[-LAST_LINES:] if problem else [])]
    elif name != "device":
        text = text[-LAST_LINES:]
    if text and (problem or not stage["rows"] or name == "device"):
        lines += ["```", *text, "```", ""]
    return lines


def platforms(answer: dict, env: dict[str, str]) -> list[str]:
    """The OpenCL platforms, and how they were found."""
    lines = [f"OpenCL loader: {answer.get('loader') or 'none found'}; runtimes from {answer.get('by', 'nowhere')}"]
    lines += [f"  {name}: {library} ({origin})" for name, library, origin in answer.get("runtimes", [])]
    lines += [f"  cannot be opened: {text}" for text in answer.get("failures", [])]
    lines += [f"  with {key}={value}" for key, value in env.items()]
    for platform in answer.get("platforms", []):
        lines.append(f"platform {platform['name']}, {platform['version']}")
        for d in platform["devices"]:
            kind = "GPU" if d["gpu"] else "no GPU"
            lines.append(f"  {d['name']} ({kind}, {d['memory'] / 2**30:.1f} GiB), driver {d['driver']}")
    if not answer.get("platforms"):
        lines.append(f"no OpenCL platform {answer.get('problem', '')}".rstrip())
    return lines


def page(results: dict) -> str:
    """The whole page."""
    lines = [f"# {results.get('device', '')}, {results.get('date', '')}", ""]
    lines += ["```", *platforms(results.get("platforms", {}), results.get("environment", {})), "```", ""]
    if "problem" in results:
        lines += [results["problem"], ""]
    for name, stage in results["stages"].items():
        lines += section(name, stage)
    return "\n".join(lines)
