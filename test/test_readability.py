"""The layers of the sources, and the bounds of tools/readability.py."""

import re
import subprocess
import sys
from pathlib import Path

from torch.testing._internal.common_utils import TestCase, run_tests

ROOT = Path(__file__).parent.parent
RUNTIME = ROOT / "csrc" / "runtime"


def code(path: Path) -> str:
    """A source without its comments."""
    return re.sub(r"//[^\n]*", "", path.read_text())


class TestLayers(TestCase):
    def test_only_the_runtime_calls_opencl(self):
        call = re.compile(r"\bcl\(\)|\bNETCL_CL\(|\bcl[A-Z]\w+\(")
        sources = [p for p in (ROOT / "csrc").rglob("*") if p.suffix in (".cpp", ".h") and RUNTIME not in p.parents]
        self.assertGreater(len(sources), 80)
        found = [f"{p.relative_to(ROOT)}: {m[0]}" for p in sources for m in call.finditer(code(p))]
        self.assertEqual(found, [])

    def test_the_runtime_knows_no_operator(self):
        for path in RUNTIME.iterdir():
            for include in re.findall(r'^#include [<"]([\w./]+)', path.read_text(), re.M):
                self.assertFalse(include.startswith(("ATen/", "torch/", "aten/", "amp/")), f"{path.name}: {include}")
            self.assertNotIn("aten::", code(path), path.name)

    def test_a_source_implements_its_header(self):
        for source in RUNTIME.glob("*.cpp"):
            self.assertTrue(source.with_suffix(".h").exists(), f"{source.name} has no header of its name")
            first = re.search(r'#include [<"]([\w./]+)', source.read_text())[1]
            self.assertEqual(first, f"runtime/{source.stem}.h", f"{source.name} includes its header first")
        declaration = r"^(?!inline|static)\w[\w:*&<> ,]* [*&]?(\w+)\([^{}]*?\)(?: noexcept)?;"
        for header in RUNTIME.glob("*.h"):
            names = re.findall(declaration, code(header), re.M)
            source = header.with_suffix(".cpp")
            text = source.read_text() if source.exists() else ""
            for name in names:
                self.assertRegex(text, rf"\b{name}\(", f"{header.name} declares {name}, {source.name} lacks it")


class TestCounts(TestCase):
    def test_within_bounds(self):
        command = [sys.executable, ROOT / "tools" / "readability.py", "--list"]
        run = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    run_tests()
