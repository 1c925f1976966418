"""Finds the names that the installed torch's Python source reads from a device module, for test_device_module.py."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import torch

ROOT = Path(torch.__file__).parent
#: Folders for one kind of device, or for tests.
LEFT_OUT = ("testing/", "cuda/", "xpu/", "mtia/", "mps/", "cpu/")
#: Calls that return a device module, besides `getattr(torch, device.type)`.
GIVERS = {"_get_device_module", "get_device_module", "_get_available_device_module"}
#: Calls that take a name and look it up in the device module.
ASKERS = {"_get_custom_mod_func"}
#: Names of variables and attributes that hold a device module which another function has set.
HOLDERS = {"device_module", "_device_module", "device_handle", "_device_handle", "device_mod", "_FSDPDeviceHandle"}


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _gives(node: ast.AST) -> bool:
    """Whether the expression is a call that returns a device module."""
    if not isinstance(node, ast.Call):
        return False
    if _name(node.func) == "getattr" and len(node.args) > 1:
        of, name = node.args[:2]
        asks_torch = isinstance(of, ast.Name) and of.id == "torch" and not isinstance(name, ast.Constant)
        return asks_torch and "dev" in ast.unparse(name)
    return _name(node.func) in GIVERS


def _asked(tree: ast.AST) -> set[str]:
    holders = set(HOLDERS)
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign) and _gives(node.value):
            targets = node.targets
        elif isinstance(node, ast.NamedExpr) and _gives(node.value):
            targets = [node.target]
        holders |= {_name(t) for t in targets} - {""}
        # torch._utils._get_device_attr(lambda m: m.device_count())
        if (
            isinstance(node, ast.Call)
            and _name(node.func) == "_get_device_attr"
            and isinstance(node.args[0], ast.Lambda)
        ):
            holders.add(node.args[0].args.args[0].arg)
    asked = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (_gives(node.value) or _name(node.value) in holders):
            asked.add(node.attr)
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if _name(node.func) in ("getattr", "hasattr") and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            if _gives(node.args[0]) or _name(node.args[0]) in holders:
                asked.add(node.args[1].value)
        if _name(node.func) in ASKERS and isinstance(node.args[0], ast.Constant):
            asked.add(node.args[0].value)
    return {name for name in asked if not name.startswith("__")}


def asked() -> dict[str, list[str]]:
    """name -> the files of torch that read it from a device module."""
    found = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        if file.startswith(LEFT_OUT):
            continue
        text = path.read_text(encoding="utf-8")
        if not any(word in text for word in (*HOLDERS, *GIVERS, *ASKERS, "_get_device_attr", "getattr(torch, ")):
            continue
        for name in _asked(ast.parse(text)):
            found[name].append(file)
    return dict(found)


if __name__ == "__main__":
    for name, files in sorted(asked().items()):
        print("   " if hasattr(torch.netcl, name) else "NOT", name, *files[:3])
