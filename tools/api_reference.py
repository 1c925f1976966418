"""Prints docs/reference.md, the signatures and docstrings of all public names: ``python tools/api_reference.py``.

It reads the sources and imports none of them, so it needs neither torch nor the libraries that some modules are for.
test/test_api.py fails if a public name is missing, or if the page is not what this prints.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "torch_netcl"
if not PACKAGE.is_dir():  # tools/test_wheel.py runs tests beside an installed package
    PACKAGE = Path(find_spec("torch_netcl").origin).parent
#: The module that users import -> (heading, file) for each part of it.
PARTS = {
    "torch.netcl": [
        ("Devices, counters", "device.py"),
        ("Memory", "memory.py"),
        ("Streams", "streams.py"),
        ("Graphs", "graphs.py"),
        ("Random numbers", "random.py"),
        ("Kernels of your own", "custom_kernel.py"),
    ],
    "torch.netcl.amp": [("", "amp/__init__.py")],
    "torch.netcl.amp.training": [("", "amp/training.py")],
    "torch_netcl.interop": [("", "interop.py")],
    "torch_netcl.safetensors": [("", "safetensors.py")],
    "torch_netcl.accelerate": [("", "accelerate.py")],
    "torch_netcl.transformers": [("", "transformers.py")],
    "torch_netcl.lightning": [("", "lightning.py")],
}
#: The classes of lightning.py, which are made when the library is there, and those that hold their docstrings.
MADE_OF = {("lightning.py", "AmpCallback"): "Watch", ("lightning.py", "NetclAccelerator"): "Devices"}
Definition = ast.FunctionDef | ast.ClassDef


def tree_of(file: str) -> ast.Module:
    """The syntax tree of a file of the package."""
    return ast.parse((PACKAGE / file).read_text())


def public_names(file: str) -> list[str]:
    """What the file's ``__all__`` lists, or else the functions and classes that it defines."""
    tree = tree_of(file)
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return [node.name for node in tree.body if isinstance(node, Definition) and not node.name.startswith("_")]


def imported_from(tree: ast.Module, file: str) -> Iterator[tuple[str, set[str]]]:
    """(file, names) for each import from the package."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("torch_netcl.")):
            inside = (node.module or "").removeprefix("torch_netcl.").replace(".", "/") + ".py"
            folder = Path(file).parent.as_posix() if node.level else "."
            yield (Path(folder) / inside).as_posix(), {name.name for name in node.names}


def find(name: str, file: str) -> tuple[Definition | None, str]:
    """The definition of a public name of a file, and the file where it is; None for constants."""
    tree = tree_of(file)
    for node in ast.walk(tree):  # also within functions, which define what needs a library
        if isinstance(node, Definition) and node.name == name:
            return node, file
    for other, names in imported_from(tree, file):
        if name in names or "define" in names:
            return find(name, other)
    return None, file


def fields(node: ast.ClassDef, file: str) -> list[str]:
    """The arguments of a dataclass's constructor, those of its base classes first."""
    bases = [find(ast.unparse(base), file) for base in node.bases]
    inherited = [field for base, where in bases if isinstance(base, ast.ClassDef) for field in fields(base, where)]
    own = [ast.unparse(n) for n in node.body if isinstance(n, ast.AnnAssign)]
    return inherited + [field for field in own if "init=False" not in field]


def signature(node: Definition, file: str) -> str:
    """``name(arguments) -> result`` as the source has it; of a class, the arguments of its constructor."""
    decorators = [ast.unparse(d) for d in node.decorator_list]
    if isinstance(node, ast.ClassDef):
        own = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name in ("__init__", "__new__")]
        if own:
            return f"class {node.name}({arguments_of(own[0])})"
        is_data = any("dataclass" in d for d in decorators)
        return f"class {node.name}" + (f"({', '.join(fields(node, file))})" if is_data else "")
    result = ast.unparse(node.returns) if node.returns else ""
    if "property" in decorators:
        return f"{node.name}: {result}"
    return f"{node.name}({arguments_of(node)})" + (f" -> {result}" if result else "")


def arguments_of(node: ast.FunctionDef) -> str:
    """The arguments, without those that Python passes."""
    return re.sub(r"^(self|cls)(, |$)", "", ast.unparse(node.args))


def markdown(docstring: str) -> str:
    """A docstring's reStructuredText as Markdown, of which indented code is a part."""
    text = re.sub(r":(?:class|func|meth|mod|attr):`~?([^`]+)`", r"`\1`", docstring)
    text = re.sub(r"^::\n\n?|(?<=:):$", "", text.replace("``", "`"), flags=re.M)
    text = re.sub(r"^(?=>>> |\.\.\. )", "    ", text, flags=re.M)
    lines, section = [], ""
    for line in text.split("\n"):
        if section and line.startswith("    "):
            item = section in ("Args:", "Attributes:", "Raises:")
            lines.append((("  " if line[4] == " " else "- ") if item else "") + line[4:].strip())
            continue
        section = line if line in ("Args:", "Attributes:", "Raises:", "Returns:", "Warns:", "Yields:") else ""
        lines += [line, ""] if section else [line]
    return "\n".join(lines).strip("\n")


def constant(name: str, file: str) -> str:
    """The comment ``#:`` above a constant, or what a second name stands for; looks in imported files as well."""
    text = (PACKAGE / file).read_text()
    if found := re.search(rf"^#: (.*)\n{name}\b", text, re.M):
        return found[1]
    if found := re.search(rf"^{name} = (\w+)$", text, re.M):
        return f"Another name of `{found[1]}`."
    for other, names in imported_from(tree_of(file), file):
        if name in names:
            return constant(name, other)
    return ""


def entry(module: str, name: str, file: str) -> list[str]:
    """The lines about a public name. Raises ValueError if it has no docstring."""
    node, where = find(MADE_OF.get((file, name), name), file)
    text = markdown(ast.get_docstring(node) or "") if node else constant(name, file)
    if not text:
        raise ValueError(f"{module}.{name} has no docstring")
    lines = [f"#### {module}.{name}", ""]
    if node:
        shown = re.sub(rf"\b{node.name}\b", name, signature(node, where), count=1)
        lines += ["```", *textwrap.wrap(shown, 110, subsequent_indent="    ", break_long_words=False), "```", ""]
    lines += [text, ""]
    for method in node.body if isinstance(node, ast.ClassDef) else ():
        shown = isinstance(method, ast.FunctionDef) and not method.name.startswith("_") and ast.get_docstring(method)
        if shown:
            indented = markdown(shown).replace("\n", "\n  ").replace("\n  \n", "\n\n")
            lines += [f"- `{signature(method, where)}`: {indented}", ""]
    return lines


def document() -> str:
    """The text of docs/reference.md."""
    lines = [
        "# API reference",
        "",
        "`python tools/api_reference.py` wrote this page from the docstrings. `torch.netcl` is there after",
        "`import torch`; [torch.netcl beside torch.cuda](api.md) tells what differs from CUDA. `DeviceLike` is",
        "`torch.device | str | int | None`: a netcl device, its index, or None for the current one.",
        "",
        *(f"- [{module}](#{re.sub(r'[^a-z_-]', '', module)})" for module in PARTS),
        "",
    ]
    for module, parts in PARTS.items():
        lines += [f"## {module}", ""]
        for heading, file in parts:
            lines += [f"### {heading}", ""] if heading else []
            lines += [markdown(ast.get_docstring(tree_of(file), clean=False) or ""), ""]
            for name in sorted(public_names(file), key=str.lower):
                lines += entry(module, name, file)
    return "\n".join(line.rstrip() for line in "\n".join(lines).rstrip().split("\n")) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
