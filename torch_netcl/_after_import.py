"""Runs a function once a module has been imported, without importing it, for things that torch has no hook for."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, then: Callable[[], object]) -> None:
        self._module, self._then = module, then

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)  # from the other finders
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self._then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def after_import(module: str, then: Callable[[], object]) -> None:
    """Calls `then` after the first import of `module`: now, if it was imported already."""
    if module in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(module, then))
