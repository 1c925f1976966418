"""``python -m benchmarks.turns OLD [WORDS ...]``: is this tree slower than the built tree in the folder OLD?

A process per tree makes each case's operands; then a sample of the old one and a sample of the new one are taken in
turn, so that both meet the same noise of the machine. The ratio is new over old, of the shortest samples: above 1, this
tree is slower. A case above LIMIT is sampled again, ROUNDS times at most. Exits with 1 if one stays above it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 1.05
ROUNDS = 4
SAMPLES = 5


def work() -> None:
    """Obey lines of JSON from stdin: a case's name makes its operands, null takes a sample and prints its seconds."""
    import gc
    from itertools import chain

    import torch

    from benchmarks import operators, training
    from benchmarks.harness import Timer

    cases = {case.name: case for case in chain(operators.cases(), training.cases()) if not case.once}
    print(json.dumps(list(cases)), flush=True)
    timer = None
    for line in sys.stdin:
        name = json.loads(line)
        if name is not None:
            timer = None
            gc.collect()
            torch.netcl.empty_cache()
            if name:
                torch.manual_seed(0)
                timer = Timer("netcl", cases[name], 0.05)
        print(json.dumps(timer.sample() if name is None else name), flush=True)


class Tree:
    """A process that times cases of the tree in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "benchmarks" / "turns.py"), "--worker"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.names: list[str] = self.answer()

    def answer(self) -> object:
        """What the process prints next."""
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process for {self.process.args} ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, what: str | None) -> object:
        """Send a line, and wait for the answer."""
        print(json.dumps(what), file=self.process.stdin, flush=True)
        return self.answer()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="a folder with another tree of this project, built")
    parser.add_argument("only", nargs="*", help="cases whose name contains all words of one of these")
    args = parser.parse_args()
    old, new = Tree(args.old.resolve()), Tree(ROOT)
    names = [n for n in new.names if n in old.names]
    names = [n for n in names if not args.only or any(all(w in n for w in words.split()) for words in args.only)]
    ratios = {}
    print("| case | old, ms | new, ms | new / old |\n|---|--:|--:|--:|")
    for name in names:
        old.ask(name), new.ask(name)
        seconds = [], []
        for _ in range(ROUNDS):
            for _ in range(SAMPLES):
                seconds[0].append(old.ask(None))
                seconds[1].append(new.ask(None))
            before, now = map(min, seconds)
            if now <= LIMIT * before:
                break
        ratios[name] = now / before
        print(f"| {name} | {before * 1e3:.4g} | {now * 1e3:.4g} | {ratios[name]:.3f} |", flush=True)
        old.ask(""), new.ask("")
    if not ratios:
        raise SystemExit("no case of that name in both trees")
    slower = [n for n, r in ratios.items() if r > LIMIT]
    print(f"\n{len(ratios)} cases, median {median(ratios.values()):.3f}; above {LIMIT}: {', '.join(slower) or 'none'}")
    return bool(slower)


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        work()
    else:
        sys.exit(main())
