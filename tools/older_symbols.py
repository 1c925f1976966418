"""Links a library that runs with an older C library than the one it is built on, as a manylinux wheel must.

A distribution's linker binds each call to the newest version of a symbol. On Debian 12, ``dlopen`` becomes
GLIBC_2.34, and the library would not load on older systems, although glibc and libstdc++ still have the older
versions. So this renames the objects' references to those (``dlopen@GLIBC_2.2.5``, as the assembler's ``.symver``
does) and links again. Symbols without an older version come from older_symbols.c and older_symbols.cpp. On a system
that is old enough, nothing changes. The compiler may be one for another machine: it names the binutils and libraries
of its target.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

# The newest versions that manylinux_2_28 allows: auditwheel's policy.
MANYLINUX_2_28 = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
_VERSION = re.compile(r"\(?(GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)\)? +(\S+)$")

Version = tuple[int, ...]
NATIVE = ("c++",)


def output(*command: str) -> str:
    """What a command prints; raises CalledProcessError."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def program(name: str, compiler: Sequence[str]) -> str:
    """The binutils' program of that name for the machine that `compiler` builds for."""
    return output(*compiler, f"-print-prog-name={name}").strip()


def symbols(library: Path, compiler: Sequence[str], *, defined: bool) -> list[tuple[str, str, Version]]:
    """(name, family, version) of the versioned dynamic symbols that a library defines or needs."""
    found = []
    for line in output(program("objdump", compiler), "-T", str(library)).splitlines():
        if ("*UND*" in line) != defined and (match := _VERSION.search(line)):
            found.append((match[3], match[1], tuple(map(int, match[2].split(".")))))
    return found


def too_new(library: Path, limits: dict[str, Version], compiler: Sequence[str] = NATIVE) -> list[str]:
    """The symbols that `library` needs in a version above `limits`."""
    return [name for name, family, version in symbols(library, compiler, defined=False) if version > limits[family]]


def system_libraries(library: Path, compiler: Sequence[str]) -> list[Path]:
    """The C and C++ libraries that `compiler` linked `library` with."""
    headers = output(program("objdump", compiler), "-p", str(library))
    names = re.findall(r"NEEDED +(lib(?:c|m|dl|pthread|stdc\+\+)\.so\.\d+)$", headers, re.M)
    files = [output(*compiler, f"-print-file-name={name}").strip() for name in names]
    return [Path(file) for file in files if "/" in file]


def renames(
    names: list[str], libraries: list[Path], limits: dict[str, Version], compiler: Sequence[str]
) -> dict[str, str]:
    """``{"dlopen": "dlopen@GLIBC_2.2.5"}``: for each name, its newest version within `limits`, if there is one."""
    best: dict[str, tuple[Version, str]] = {}
    for library in libraries:
        for name, family, version in symbols(library, compiler, defined=True):
            if name in names and version <= limits[family]:
                best[name] = max(best.get(name, ((), "")), (version, family))
    return {n: f"{n}@{family}_{'.'.join(map(str, version))}" for n, (version, family) in best.items()}


def link_for(link: Callable, limits: dict[str, Version] = MANYLINUX_2_28, compiler: Sequence[str] = NATIVE) -> Callable:
    """Setuptools' `link`, followed by the renaming that the module describes; raises RuntimeError if a symbol is still
    too new. `compiler` is the C++ compiler that made the objects."""

    def relink(target: str, objects: list[str], name: str, output_dir: str | None = None, *args, **kwargs) -> None:
        link(target, objects, name, output_dir, *args, **kwargs)
        library = Path(output_dir or "") / name
        names = too_new(library, limits, compiler)
        if not names:
            return
        new_names = renames(names, system_libraries(library, compiler), limits, compiler)
        with tempfile.TemporaryDirectory() as folder:
            options = [f"--redefine-sym={old}={new}" for old, new in new_names.items()]
            renamed = []
            for suffix, language in ((".c", ("-xc",)), (".cpp", ("-std=c++20",))):
                renamed.append(f"{folder}/older_symbols{suffix}.o")
                source = str(Path(__file__).with_suffix(suffix))
                output(*compiler, *language, "-O2", "-fPIC", "-c", source, "-o", renamed[-1])
            for i, file in enumerate(objects):
                renamed.append(f"{folder}/{i}.o")
                output(program("objcopy", compiler), *options, file, renamed[-1])
            link(target, renamed, name, output_dir, *args, **kwargs)
        if left := too_new(library, limits, compiler):
            raise RuntimeError(f"{library} needs {', '.join(left)}, newer than {limits}")

    return relink
