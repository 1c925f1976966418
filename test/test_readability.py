"""The layers of the sources, and the bounds of tools/readability.py."""

import importlib.util
import re
import subprocess
import sys
import tempfile
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


spec = importlib.util.spec_from_file_location("readability", ROOT / "tools" / "readability.py")
readability = importlib.util.module_from_spec(spec)
sys.modules["readability"] = readability
spec.loader.exec_module(readability)


def tree(**files: str):
    """What tools/readability.py sees in a tree of these files, whose names have _ for a slash."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "CONTRIBUTING.md").write_text("")
        for name, text in files.items():
            folder, _, file = name.partition("_")
            (root / folder).mkdir(exist_ok=True)
            (root / folder / (file + (".cpp" if folder == "csrc" else ".cl"))).write_text(text)
        return readability.Tree(root)


class TestCounts(TestCase):
    eight = ", ".join(f"int a{i}" for i in range(8))

    def test_parameters_of_registered_functions_are_atens(self):
        function = f"void f({self.eight}) {{\n}}\n"
        for how in ('m.impl("f.out", &f);', 'm.impl("f", &(f<true, double>));', "DISPATCH(f_stub, &netcl::f)"):
            self.assertEqual(tree(csrc_a=function + f"void init() {{\n  {how}\n}}\n").many_parameters("csrc"), [], how)
        elsewhere = tree(csrc_a=function, csrc_b='void init() {\n  m.impl("f", &f);\n}\n')
        self.assertEqual(elsewhere.many_parameters("csrc"), ["csrc/a.cpp:1 f: 2 lines, 8 parameters"])

    def test_a_macros_call_is_no_function(self):
        text = f"LIST(a, b, c, d, e, f, g, h)\nstatic int f(int a) {{\n}}\nstatic int g({self.eight}) {{\n}}\n"
        self.assertEqual(tree(kernels_a=text).many_parameters("kernels"), ["kernels/a.cl:4 g: 2 lines, 8 parameters"])

    def test_a_macro_that_repeats_a_kernels_name(self):
        kernel = "#ifdef {}\n__kernel void pool_max(int n) {{\n}}\n#endif\n"
        self.assertEqual(tree(kernels_a=kernel.format("POOL_MAX")).selectors(), ["kernels/a.cl: POOL_MAX"])
        self.assertEqual(tree(kernels_a=kernel.format("HAVE_FP64")).selectors(), [])

    def test_kernels_in_macros_and_their_parameters(self):
        buffers = ", ".join(f"BUF(b{i})" for i in range(7))
        text = f"#define MAKE(name) \\\n  __kernel void name##_rows({buffers}, int n) {{ \\\n  }}\nMAKE(a)\n"
        text += f"__kernel\nvoid plain({buffers}) {{\n}}\n// __kernel void none(int a)\n"
        found = tree(kernels_a=text)
        self.assertEqual(found.kernels(8), ["kernels/a.cl:2 name##_rows: 8 parameters"])
        self.assertEqual(len(found.kernels()), 2)
        self.assertEqual(found.preprocessor_percent(), 38)  # 3 of 8 lines

    def test_macros(self):
        text = "#define F(a, b) \\\n  (a) + \\\n  (b)\n#define LIST(_) \\\n  _(a)\n#define N 3\n"
        self.assertEqual(list(tree(kernels_a=text).macros()), [("kernels/a.cl:1 F", 2, 3), ("kernels/a.cl:6 N", 0, 1)])

    def test_options_of_the_host(self):
        text = 'd.set("VEC", 4).set("IN", "f32");\nauto o = " -DHAVE_FP64";\nx.set(y);\n'
        self.assertEqual(tree(csrc_a=text).options(), ["HAVE_FP64", "IN", "VEC"])

    def test_public_methods(self):
        text = "class Queue {\n public:\n  Queue(int a);\n  ~Queue();\n  int a() const { return b_(); }\n  void c(\n"
        text += "      int d);\n\n private:\n  void e();\n  int b_() const;\n};\n"
        found = tree()
        found.files["csrc/runtime/Queue.h"] = text
        self.assertEqual(found.public_methods("Queue"), ["a", "c"])

    def test_circles(self):
        self.assertEqual(readability.within_circles([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]),
                         ["a -> b", "b -> c", "c -> a"])  # fmt: skip
        files = tree()
        files.files |= {
            "p/a.py": "from . import b\n",
            "p/b.py": "if x:\n    from .a import f\n",
            "p/c.py": "from .a import g\n",
        }
        self.assertEqual(files.circles_of_imports(), ["p/a.py -> p/b.py", "p/b.py -> p/a.py"])

    def test_trees_of_sums(self):
        text = "  for (int k = LS / 2; k > 0; k >>= 1) {\n  for (uint n = GROUP / 2; n > 0; n /= 2)\n"
        self.assertEqual(len(tree(kernels_a=text).places(readability.TREE, "kernels")), 2)

    def test_architecture_shows_the_bounds(self):
        text = (ROOT / "docs" / "architecture.md").read_text().partition("## How readable it is")[2]
        shown = re.findall(r"^\| ([^|]+?) \| (\d+) \| (\d+) \|$", text, re.M)
        self.assertEqual([(name, int(most), int(target)) for name, most, target in shown],
                         [(name, *bound) for name, bound in readability.BOUNDS.items()])  # fmt: skip

    def test_within_bounds(self):
        command = [sys.executable, ROOT / "tools" / "readability.py", "--list"]
        run = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    run_tests()
