"""Files that are replaced as a whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def _mode_of_new_files() -> int:
    """The mode that open() gives. Without Linux's file, only setting the umask tells it, in all threads."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return 0o666 & ~int(next(line for line in status if line.startswith("Umask:")).split()[1], 8)
    before = os.umask(0o077)
    os.umask(before)
    return 0o666 & ~before


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new, empty file beside ``path``, which takes its place at the end; an error removes it instead.

    Its name is unpredictable and it is created exclusively: a link under that name is not followed, and a process with
    the same id in another container has another file.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".tmp")
    try:
        with contextlib.suppress(PermissionError):  # some file systems have no modes
            os.chmod(name, _mode_of_new_files())  # mkstemp's is 0600
        os.close(handle)
        yield Path(name)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
