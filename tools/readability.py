"""Counts what makes C++ and OpenCL C hard to read, and exits with 1 if a count exceeds its bound.

    python tools/readability.py             the table of this tree
    python tools/readability.py DIR [DIR…]  the table of these trees, with a column each
    python tools/readability.py --list      also names what is counted

It needs no compiler: it removes comments and strings, and matches braces. Functions are counted outside macros;
kernels and macros are counted by themselves, wherever they stand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LINES, PARAMETERS, DEPTH, FILE_LINES, MACRO_LINES = 80, 7, 2, 800, 20


class Bound(NamedTuple):
    """The largest allowed count, and the one to reach."""

    most: int
    target: int


# Bounds only fall: lower one when its count has fallen. docs/architecture.md shows them.
BOUNDS = {
    "functions above 80 lines": Bound(000, 0),
    "functions above 7 parameters, C++": Bound(000, 0),
    "functions above 7 parameters, OpenCL C": Bound(000, 0),
    "kernels above 7 parameters": Bound(000, 20),
    "macros above 7 parameters": Bound(1, 0),
    "macros above 20 lines": Bound(0, 0),
    "files with #if above depth 2": Bound(000, 0),
    "structs written twice": Bound(000, 0),
    "-D that repeat a kernel's name": Bound(000, 0),
    "files above 800 lines": Bound(000, 0),
    "lines of csrc and kernels": Bound(50327, 42500),
    "kernels": Bound(218, 190),
    "-D names that the host sets": Bound(95, 100),
    "preprocessor lines of kernels, percent": Bound(28, 20),
    "is_cpu() in csrc": Bound(39, 60),
    "compute_units() in csrc/aten": Bound(1, 1),
    "trees of sums over lanes or a group": Bound(1, 1),
    "double-buffered loops of products": Bound(1, 1),
    "places that enqueue a command": Bound(1, 1),
    "public methods of Queue": Bound(14, 14),
    "includes within a circle, csrc": Bound(0, 0),
    "imports within a circle, torch_netcl": Bound(0, 0),
    "lines for a unary operator": Bound(4, 4),
    "lines for a reduction": Bound(13, 13),
    "lines for an autocast entry": Bound(1, 1),
}
TABLES = {"special_tables.h"}  # generated


def blank(match: re.Match[str]) -> str:
    """As many line ends as the match has."""
    return "\n" * match[0].count("\n") if "/" in match[0][:1] else '""' + "\n" * match[0].count("\n")


def bare(text: str) -> str:
    """The text without comments and the content of strings; line numbers stay."""
    comment, string = r"//[^\n]*|/\*.*?\*/", r'R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    return re.sub(f"{comment}|{string}", blank, text, flags=re.S)


def without_directives(text: str) -> str:
    """The text without preprocessor lines, and without lines that only call a macro."""
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m[0].count("\n"), text, flags=re.M)
    return re.sub(r"^[A-Z_0-9]+\([^(){}\n]*\)$", "", text, flags=re.M)


def one_branch(text: str) -> str:
    """The text with the first branch of each `#if`, so that braces match."""
    kept, skipping = [], []
    for line in text.split("\n"):
        if re.match(r"\s*#\s*if", line):
            skipping.append(False)
        elif re.match(r"\s*#\s*el", line) and skipping:
            skipping[-1] = True
        elif re.match(r"\s*#\s*endif", line) and skipping:
            skipping.pop()
        kept.append(line if line.lstrip().startswith("#") or not any(skipping) else "")
    return "\n".join(kept)


def split_parameters(text: str) -> list[str]:
    """The parameters of a list, split at the commas outside brackets."""
    parts, depth, word = [], 0, ""
    for c in text:
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and depth == 0:
            parts.append(word)
            word = ""
        else:
            word += c
    return [p.strip() for p in [*parts, word] if p.strip() not in ("", "void")]


def closing(text: str, at: int) -> int:
    """The place of the bracket that closes the one at `at`."""
    level = 0
    for i in range(at, len(text)):
        level += (text[i] == "(") - (text[i] == ")")
        if level == 0:
            return i
    return len(text)


DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
MACRO = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^)]*)\))?")
KERNEL = re.compile(r"\b__kernel\b[^;{#]*?\bvoid\s+([\w#]+)\s*\(")
TREE = re.compile(r"for \(\w+ (\w+) = (?:[A-Z]+|\(width\)) / 2; \1 > 0; \1 (?:/= 2|>>= 1)\)")


def within_circles(arrows: Iterable[tuple[str, str]]) -> list[str]:
    """The arrows a -> b from whose end a way leads back to a."""
    ends: dict[str, set[str]] = {}
    for a, b in arrows:
        ends.setdefault(a, set()).add(b)

    def reached(start: str) -> set[str]:
        seen, todo = set(), [start]
        while todo:
            new = ends.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        return seen

    ways = {a: reached(a) for a in ends}
    return sorted(f"{a} -> {b}" for a, found in ends.items() for b in found if a != b and a in ways.get(b, set()))


class Function:
    """A function with a body: its name, file, first line, number of lines, and parameters."""

    def __init__(self, path: str, name: str, line: int, lines: int, parameters: list[str], kernel: bool) -> None:
        self.path, self.name, self.line, self.lines = path, name, line, lines
        self.parameters, self.kernel = parameters, kernel

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}: {self.lines} lines, {len(self.parameters)} parameters"


SCOPE = re.compile(r"\b(namespace|struct|class|union|extern)\b")
HEAD = re.compile(r"([~\w:]+|operator\S+)\s*\(")


def functions(path: str, text: str) -> list[Function]:
    """The functions of a file, including those in classes, but not lambdas."""
    text = without_directives(one_branch(bare(text)))
    found: list[Function] = []
    scopes: list[tuple[str, int, str]] = []  # kind, start of its header, header
    start, depth, inside = 0, 0, 0
    for at, c in enumerate(text):
        if c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
        elif c == ";" and depth == 0 and not inside:
            start = at + 1
        elif c == "{":
            header = text[start:at]
            if inside or depth:
                inside += 1
                continue
            plain = header.split(")")[0]
            is_function = ")" in header and "=" not in re.sub(r"\(.*", "", header, flags=re.S).replace("operator", "")
            if SCOPE.search(re.sub(r"<[^<>]*>", "", plain.split("(")[0])) and not is_function:
                scopes.append(("scope", start, header))
                start = at + 1
            elif is_function:
                scopes.append(("function", start, header))
                inside = 1
            else:
                scopes.append(("other", start, header))
                inside = 1
        elif c == "}":
            if depth:
                inside -= inside > 0
                continue
            if inside > 1:
                inside -= 1
                continue
            if not scopes:
                continue
            kind, begin, header = scopes.pop()
            inside = 0
            start = at + 1
            if kind != "function":
                continue
            header = re.sub(r"__attribute__\s*\(\(.*?\)\)\)?|\btemplate\s*<[^{;]*?>\s*(?=\w)", "", header, flags=re.S)
            header = re.sub(r"\bFEW_ITEMS\b|\b\w+_GROUP_SIZE\b", "", header)
            match = HEAD.search(header)
            if not match:
                continue
            end = closing(header, match.end() - 1)
            begin += len(text[begin:at]) - len(text[begin:at].lstrip())
            line = text.count("\n", 0, begin) + 1
            found.append(Function(path, match[1], line, text.count("\n", begin, at) + 1,
                                  split_parameters(header[match.end() : end]), "__kernel" in header))  # fmt: skip
    return found


def if_depth(text: str) -> int:
    """The depth of nested `#if` in a file, without its include guard."""
    lines = [line.strip() for line in bare(text).split("\n")]
    depth = deepest = 0
    for i, line in enumerate(lines):
        if re.match(r"#\s*if", line):
            guard = re.match(r"#\s*ifndef (\w+)", line)
            depth += not (guard and i + 1 < len(lines) and re.match(rf"#\s*define {guard[1]}$", lines[i + 1]))
            deepest = max(deepest, depth)
        elif re.match(r"#\s*endif", line):
            depth = max(depth - 1, 0)
    return deepest


class Tree:
    """The sources of one tree, and its counts."""

    def __init__(self, root: Path) -> None:
        self.files = {
            str(p.relative_to(root)): p.read_text()
            for folder, ends in (("csrc", (".cpp", ".h")), ("kernels", (".cl", ".h")), ("torch_netcl", (".py",)))
            for p in sorted((root / folder).rglob("*"))
            if p.suffix in ends and p.name not in TABLES
        }
        self.contributing = (root / "CONTRIBUTING.md").read_text()
        self.functions = [f for path, text in self.c_files() for f in functions(path, text)]

    def c_files(self, folder: str = "") -> list[tuple[str, str]]:
        """Path and text of the C++ and OpenCL C files in a folder."""
        return [(p, t) for p, t in self.files.items() if p.startswith(folder) and not p.endswith(".py")]

    def long_functions(self) -> list[str]:
        """Functions of more than LINES lines, except lists of registrations, which are tables."""
        return [str(f) for f in self.functions if f.lines > LINES and not f.name.startswith("NETCL_LIBRARY")]

    def atens(self, path: str) -> set[str]:
        """Names of a file's functions with ATen's signatures: registered there, or `impl` of a structured class."""
        before = r"(?:m\.impl\(\s*\"[\w.]*\",\s*|TORCH_FN\(|DISPATCH\(\w+,\s*)"
        return {"impl", *re.findall(before + r"&?\(?(?:netcl::)?(\w+)", self.files[path])}

    def many_parameters(self, folder: str) -> list[str]:
        """Functions of more than PARAMETERS parameters, except kernels and functions with ATen's signatures."""
        return [
            str(f) for f in self.functions
            if f.path.startswith(folder) and len(f.parameters) > PARAMETERS and not f.kernel
            and f.name.split("::")[-1] not in self.atens(f.path)
        ]  # fmt: skip

    def deep_ifs(self) -> list[str]:
        """Files with `#if` nested deeper than DEPTH."""
        return [p for p, text in self.c_files() if if_depth(text) > DEPTH]

    def structs_twice(self) -> list[str]:
        """Structs that are defined in a kernel's file and that the host passes by value, so that it must define them
        again."""
        own: dict[str, str] = {}
        for path, text in self.c_files("kernels"):
            if not path.startswith("kernels/args/"):
                text = without_directives(bare(text))
                for name in re.findall(r"typedef struct[^;{]*\{[^}]*\}\s*(\w+);|\bstruct (\w+)\s*\{", text):
                    own[next(filter(None, name))] = path
        passed = set()
        for f in self.functions:
            if f.kernel:
                words = [re.sub(r"\b(const|struct)\b", "", p).split() for p in f.parameters]
                passed |= {w[0] for w in words if len(w) == 2 and w[0] in own}
        return sorted(f"{own[name]}: {name}" for name in passed)

    def selectors(self) -> list[str]:
        """Macros that an `#if` around a kernel tests, and whose words are all in that kernel's name."""
        found = set()
        for path, text in self.c_files("kernels"):
            stack: list[list[str]] = []
            for line in bare(text).split("\n"):
                if re.match(r"\s*#\s*(if|elif)", line):
                    if "elif" in line and stack:
                        stack.pop()
                    stack.append(re.findall(r"[A-Z]\w+", line))
                elif re.match(r"\s*#\s*endif", line) and stack:
                    stack.pop()
                elif kernel := re.match(r"__kernel.* void (\w+)\(", line):
                    words = set(kernel[1].split("_"))
                    for macro in {m for tested in stack for m in tested}:
                        parts = set(re.sub(r"^(KERNEL|FORM)_", "", macro).lower().split("_"))
                        if parts <= words:
                            found.add(f"{path}: {macro}")
        return sorted(found)

    def long_files(self) -> list[str]:
        """Files of more than FILE_LINES lines."""
        lines = {p: t.count("\n") for p, t in self.files.items()}
        return [f"{p}: {n} lines" for p, n in lines.items() if n > FILE_LINES]

    def kernels(self, least: int = 0) -> list[str]:
        """The kernels of at least so many parameters, those within macros too; BUF(x) is one parameter."""
        found = []
        for path, text in self.c_files("kernels"):
            text = bare(text).replace("\\\n", "\n")
            for match in KERNEL.finditer(text):
                inside = re.sub(r"^\s*#.*$", "", text[match.end() : closing(text, match.end() - 1)], flags=re.M)
                if (n := len(split_parameters(inside))) >= least:
                    found.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1} {match[1]}: {n} parameters")
        return found

    def macros(self) -> Iterator[tuple[str, int, int]]:
        """The macros that are no lists: place and name, number of parameters, and of lines."""
        for path, text in self.c_files():
            text = bare(text)
            for directive in DIRECTIVE.finditer(text):
                macro = MACRO.match(directive[0].replace("\\\n", " "))
                if macro and macro[2] != "_":
                    name = f"{path}:{text.count(chr(10), 0, directive.start()) + 1} {macro[1]}"
                    yield name, len(split_parameters(macro[2] or "")), directive[0].count("\n") + 1

    def preprocessor_percent(self) -> int:
        """Lines of directives and macros among the lines of kernels that are not empty."""
        texts = [text for _, text in self.c_files("kernels")]
        lines = sum(bool(line.strip()) for text in texts for line in text.split("\n"))
        directives = sum(d.count("\n") + 1 for text in texts for d in DIRECTIVE.findall(bare(text)))
        return round(100 * directives / max(lines, 1))

    def places(self, pattern: str | re.Pattern[str], folder: str) -> list[str]:
        """Where a pattern stands in the code of a folder."""
        return [
            f"{path}:{text.count(chr(10), 0, match.start()) + 1} {match[0]}"
            for path, text in ((p, bare(t)) for p, t in self.c_files(folder))
            for match in re.finditer(pattern, text)
        ]

    def options(self) -> list[str]:
        """The names of -D options in the host's code."""
        found = re.compile(r"\.set\(\"(\w+)\"|\"[^\"\n]*?-D(\w+)")
        return sorted({a or b for _, text in self.c_files("csrc") for a, b in found.findall(text)})

    def public_methods(self, name: str) -> list[str]:
        """The public methods of a class of csrc/runtime, without constructors and operators."""
        text = bare(self.files.get(f"csrc/runtime/{name}.h", ""))
        body = re.search(rf"^class {name} .*?\bpublic:(.*?)^(?: private:|}};)", text, re.M | re.S)
        return re.findall(r"^  (?!explicit|friend)\w[^;{(]*?[ *&](\w+)\(", body[1], re.M) if body else []

    def circles_of_includes(self) -> list[str]:
        """Includes within a circle; a header and its source count as one."""
        return within_circles(
            (re.sub(r"^csrc/|\.\w+$", "", path), include)
            for path, text in self.c_files("csrc")
            for include in re.findall(r"^#include \"([\w/]+)\.h\"", text, re.M)
        )

    def circles_of_imports(self) -> list[str]:
        """Relative imports within a circle, those in functions and those for types too."""
        arrows = []
        for path, text in self.files.items():
            if path.endswith(".py"):
                package = path.split("/")[:-1]
                for dots, module, names in re.findall(r"^\s*from (\.+)([\w.]*) import \(?([\w, \n]+)", text, re.M):
                    base = package[: len(package) - len(dots) + 1] + [x for x in module.split(".") if x]
                    for name in names.replace("\n", " ").replace(",", " ").split():
                        file = "/".join([*base, name]) + ".py"
                        arrows.append((path, file if file in self.files else "/".join(base) + ".py"))
        return within_circles(arrows)

    def diff_lines(self, title: str) -> list[str]:
        """The lines that CONTRIBUTING's first diff below a heading adds."""
        section = re.search(rf"^### {title}.*?(?=^##)", self.contributing + "\n##", re.M | re.S)
        diff = re.search(r"```diff\n(.*?)```", section[0], re.S) if section else None
        return re.findall(r"^\+(?!\+\+ )(.+)$", diff[1], re.M) if diff else []

    def counts(self) -> dict[str, list[str] | int]:
        """Each row of the table: the counted things, or their number."""
        macros = list(self.macros())
        found = [
            self.long_functions(), self.many_parameters("csrc"), self.many_parameters("kernels"),
            self.kernels(PARAMETERS + 1), [f"{m}: {n} parameters" for m, n, _ in macros if n > PARAMETERS],
            [f"{m}: {n} lines" for m, _, n in macros if n > MACRO_LINES],
            self.deep_ifs(), self.structs_twice(), self.selectors(), self.long_files(),
            sum(text.count("\n") for _, text in self.c_files()), self.kernels(), self.options(),
            self.preprocessor_percent(), self.places(r"\bis_cpu\(\)", "csrc"),
            self.places(r"\bcompute_units\(\)", "csrc/aten"), self.places(TREE, "kernels"),
            self.places(r"\n +multiply_blocks\(", "kernels"),
            self.places(r"\bEnqueuing \w+\(", "csrc"), self.public_methods("Queue"), self.circles_of_includes(),
            self.circles_of_imports(), self.diff_lines("A unary"), self.diff_lines("A reduction"),
            self.diff_lines("An autocast entry"),
        ]  # fmt: skip
        return dict(zip(BOUNDS, found, strict=True))


def number(found: list[str] | int) -> int:
    """A row's count."""
    return found if isinstance(found, int) else len(found)


def main() -> int:
    """Print the table; returns 1 if the last tree exceeds a bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT])
    parser.add_argument("--list", action="store_true", help="name what is counted")
    options = parser.parse_args()
    columns = [Tree(root).counts() for root in options.trees]
    print(f"| {'':40} | {' | '.join(f'{r.resolve().name:>10}' for r in options.trees)} | at most | target |")
    print(f"|{'-' * 42}|{'|'.join('-' * 11 + ':' for _ in columns)}|{'-' * 8}:|{'-' * 7}:|")
    over = 0
    for row, bound in BOUNDS.items():
        cells = " | ".join(f"{number(c[row]):>10}" for c in columns)
        print(f"| {row:40} | {cells} | {bound.most:>7} | {bound.target:>6} |")
        over += number(columns[-1][row]) > bound.most
    if options.list:
        for row, items in columns[-1].items():
            if isinstance(items, list):
                print(f"\n{row}", *items, sep="\n  ")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
