"""The documents name files that exist and variables that the code reads, and the Makefile lists all long tests."""

import ast
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from conftest import LONG
from host_operators import FILE
from torch.testing._internal.common_utils import TestCase, run_tests

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = ("torch_netcl/", "csrc/", "kernels/", "test/", "examples/", "docs/", "benchmarks/", ".ci/")


def hunks(text, source):
    """A diff's hunks with the line numbers that git needs. `@@` separates hunks, and the first line of each is
    context."""
    lines, result, moved = source.split("\n"), "", 0
    for hunk in text.rstrip("\n").split("\n@@\n"):
        wanted = [line[1:] for line in hunk.split("\n")]
        at = next((i for i in range(len(lines)) if lines[i : i + len(wanted)] == wanted), None)
        assert at is not None, "CONTRIBUTING.md shows lines that the source no longer has:\n" + "\n".join(wanted)
        added = sum(line.startswith("+") for line in hunk.split("\n"))
        size = len(wanted) + 1  # git needs context at the end as well
        result += f"@@ -{at + 1 - moved},{size - added} +{at + 1},{size} @@\n{hunk}\n {lines[at + len(wanted)]}\n"
        moved += added
    return result


class TestDocs(TestCase):
    def test_paths_exist(self):
        found = 0
        for document in DOCUMENTS:
            for word in re.findall(r"[`(\s]((?:\w|\.)[\w./-]*/[\w./-]*)", document.read_text()):
                path = word.removeprefix("a/").rstrip(".")
                if path.startswith(FOLDERS):
                    found += 1
                    self.assertTrue((ROOT / path).exists(), f"{document.name} names {path}")
        self.assertGreater(found, 20)

    def test_links(self):
        """Links lead to files, and to headings as GitHub names them."""

        def headings(path):
            text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
            lines = re.findall(r"^#+ (.+)$", text, re.M)
            return [re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines]

        found = 0
        for document in DOCUMENTS:
            for link in re.findall(r"\]\(([^()\s]+)\)", document.read_text()):
                path, _, heading = link.partition("#")
                if "://" not in link:
                    target = (document.parent / path) if path else document
                    self.assertTrue(target.exists(), f"{document.name} links to {link}")
                    found += 1
                    if heading:
                        self.assertIn(heading, headings(target), f"{document.name} links to {link}")
        self.assertGreater(found, 40)

    def test_index(self):
        """It lists every page, and answers what newcomers ask."""
        text = (ROOT / "docs" / "index.md").read_text()
        pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
        self.assertEqual(pages - set(re.findall(r"\((\w+\.md)", text)), set())
        asked = ("train", "compile", "several processes", "save and load", "write a kernel", "debug", "report a bug")
        for question in asked:
            self.assertRegex(text, rf"\n\| .*{question}.*\? \| .*\(.*\) \|")
        template = (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.md").read_text()
        self.assertIn("output of `python -m torch_netcl`", template)

    def test_commands(self):
        """What is typed after `make` is a target, and after `python -m` a module."""
        makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
        targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.M)[1].split())
        targets |= set(re.findall(r"^([\w-]+)(?:, [\w-]+)*:(?!=)", makefile, re.M))
        found = 0
        for document in DOCUMENTS:
            text = document.read_text()
            lines = "".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)).splitlines()
            for line in [*lines, *re.findall(r"`([^`\n]+)`", text)]:
                for words in re.findall(r"(?:^|&& )make ([^#&|>;]+)", line):
                    wanted = {word for word in words.split() if not re.search(r"[=\"…]", word)}
                    self.assertEqual(wanted - targets, set(), f"{document.name}: {line}")
                    found += len(wanted)
                for module in re.findall(r"python -m ((?:torch_netcl|benchmarks)[\w.]*)", line):
                    path = ROOT / module.replace(".", "/")
                    self.assertTrue(path.with_suffix(".py").exists() or (path / "__main__.py").exists(), line)
                    found += 1
        self.assertGreater(found, 40)

    def test_source_archive(self):
        """It has all that a clone has: `make demo` and the Dockerfile work from it."""
        run = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
        if run.returncode:
            self.skipTest("not a clone")
        listed = set((ROOT / "MANIFEST.in").read_text().split())
        always = {"MANIFEST.in", "pyproject.toml", "setup.py", "torch_netcl"}  # by setuptools
        self.assertEqual({line.partition("/")[0] for line in run.stdout.splitlines()} - listed - always, set())

    def test_names_of_the_walk_exist(self):
        text = (ROOT / "CONTRIBUTING.md").read_text()
        stops = re.findall(r"^\| `([\w./]+)` \| `(\w+)` \|", text, re.M)
        places = re.findall(r"^\| [^|`]+ \| `([\w ]+)` in `([\w./]+)` \|", text, re.M)
        self.assertGreater(len(stops), 7)
        self.assertGreater(len(places), 9)
        for file, name in [*stops, *((file, name) for name, file in places)]:
            self.assertRegex((ROOT / file).read_text(), rf"\b{name}\b", f"CONTRIBUTING.md names {name} of {file}")

    def test_diffs_apply(self):
        """Removed from a copy of the sources, an operator leaves no trace; applied again, the diff restores the
        sources."""
        diffs = re.findall(r"^```diff\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S)
        self.assertEqual(len(diffs), 3)
        for diff in diffs:
            with tempfile.TemporaryDirectory() as folder:
                copies, patch = {}, ""
                for path, text in re.findall(r"^--- a/(\S+)\n(.*?)(?=^---|\Z)", diff, re.M | re.S):
                    copies[Path(folder, path)] = (ROOT / path).read_bytes()
                    Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                    Path(folder, path).write_bytes(copies[Path(folder, path)])
                    patch += f"--- a/{path}\n+++ b/{path}\n{hunks(text, (ROOT / path).read_text())}"
                for reverse in (["--reverse"], []):
                    command = ["git", "apply", *reverse, "-"]
                    run = subprocess.run(command, cwd=folder, input=patch, capture_output=True, text=True)
                    self.assertEqual(run.returncode, 0, run.stderr + patch)
                    if reverse:
                        added = re.findall(r"^\+.*?\b(exp2|nansum|gru)\b", diff, re.M)
                        self.assertTrue(added)
                        for file in copies:
                            self.assertNotRegex(file.read_text(), rf"\b(OP_)?{added[0]}(_\w+)?\b")
                for file, content in copies.items():
                    self.assertEqual(file.read_bytes(), content)

    def test_tests_in_tables_exist(self):
        for document in ("reliability.md", "gpu.md"):
            names = re.findall(r"`(test_\w+)(?:\.py)?::(test_\w+)`", (ROOT / "docs" / document).read_text())
            self.assertGreater(len(names), 20)
            for module, name in names:
                self.assertIn(f"def {name}(", (ROOT / "test" / f"{module}.py").read_text(), f"{module}::{name}")

    def test_variables_are_read(self):
        sources = [p for d in ("torch_netcl", "csrc", "examples") for p in (ROOT / d).rglob("*") if p.is_file()]
        sources += [ROOT / "setup.py", ROOT / "Makefile", ROOT / ".ci" / "run"]
        text = "".join(p.read_text() for p in sources if p.suffix in (".py", ".cpp", ".h", "") and "_C" not in p.name)
        for document in DOCUMENTS:
            for name in set(re.findall(r"\bNETCL_[A-Z_]*[A-Z]\b", document.read_text())):
                if name not in ("NETCL_ASSERT_INDEX",) and not name.startswith("NETCL_MAP2"):
                    self.assertIn(name, text, f"{document.name} names {name}")

    def test_what_is_replaced_in_torch(self):
        """The table in architecture.md has all that importing the package changes in PyTorch, and all is there."""
        text = (ROOT / "docs" / "architecture.md").read_text()
        rows = re.findall(r"^\| (.+?) \| .+? \| .+? \| `(\w+\.py)` \|$", text.partition("## What is replaced")[2], re.M)
        files = {"_after_import.py"} | {
            p.name for p in (ROOT / "torch_netcl").glob("_*.py") if "torch." in p.read_text()
        }
        self.assertEqual([file for _, file in rows if file not in files], [])
        named = {word for cell, file in rows if file != "_after_import.py" for word in re.findall(r"`([\w.]+)`", cell)}
        run = subprocess.run(
            [sys.executable, ROOT / "test" / "torch_changes.py"], capture_output=True, text=True, check=True
        )
        found = {line.split()[1] for line in run.stdout.splitlines()}
        self.assertEqual(found - named, set())
        if not torch.backends.cuda.is_built():
            self.assertEqual(named - found, set())
        sources = "".join(p.read_text() for p in (ROOT / "torch_netcl").rglob("*.py"))
        loaded = next(cell for cell, file in rows if file == "_after_import.py")
        self.assertEqual(
            set(re.findall(r'after_import\("([\w.]+)"', sources)), set(re.findall(r"`(torch\.[\w.]+)`", loaded))
        )

    def test_operators_on_the_host(self):
        listed = FILE.read_text()
        if f"torch {torch.__version__.split('+')[0]};" not in listed:
            self.skipTest("the list is of another torch's operators")
        script = ROOT / "test" / "host_operators.py"
        page = subprocess.run([sys.executable, script, "--print"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(listed, page, "run test/host_operators.py: an operator got its kernel, or lost it")
        said = re.search(r"^\| On the host.*$", (ROOT / "README.md").read_text(), re.M)[0]
        named = re.findall(r"`(\w+)`", said)
        self.assertGreater(len(named), 5)
        self.assertEqual([n for n in named if f"- `{n}`" not in listed], [], "README names what has a kernel")

    def test_operators_on_the_host_name_themselves(self):
        a, d = torch.eye(4) + 0.1, torch.device("netcl", 0)
        calls = {
            "_linalg_eigvals": lambda t: torch.linalg.eigvals(t), "linalg_eig": torch.linalg.eig,
            "_to_sparse_bsr": lambda t: t.to_sparse_bsr((2, 2)),
        }  # fmt: skip
        listed = FILE.read_text()
        for name, call in calls.items():
            with self.subTest(op=name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.netcl.reset_cpu_fallback_ops()
                call(a.to(d))
                seen = [n.removeprefix("aten::").split(".")[0] for n in torch.netcl.cpu_fallback_ops()]
                self.assertTrue(seen, f"{name} has a kernel: take it out of README and of this test")
                self.assertEqual([n for n in seen if f"- `{n}`" not in listed], [])

    def test_full_tier_runs_every_long_test(self):
        makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
        classes = re.search(r"^LONG_TESTS := (.*)$", makefile, re.M)[1].split(" or ")
        for path in (ROOT / "test").glob("test_*.py"):
            if path.name != Path(__file__).name and "NETCL_TEST_FULL" in path.read_text():
                own = re.findall(r"^class (Test\w+)", path.read_text(), re.M)
                names = {c.strip() for c in classes} & {*own, path.stem}
                self.assertTrue(names, f"add {path.stem} or a class of it to LONG_TESTS")

    def test_lists_of_files_and_tests_name_what_exists(self):
        """The groups of sources that setup.py compiles as one, and the tests that `make test` leaves out."""
        groups = ast.literal_eval(re.search(r"^GROUPS = (\{.*?^\})", (ROOT / "setup.py").read_text(), re.M | re.S)[1])
        for pattern in " ".join(groups.values()).split():
            self.assertTrue(list((ROOT / "csrc").glob(f"{pattern}.cpp")), f"setup.py: {pattern}")
        self.assertGreater(len(LONG), 10)
        for file, _, name in (entry.partition("::") for entry in LONG):
            tests = re.findall(r"def (test_\w+|test)\(", (ROOT / "test" / f"{file}.py").read_text())
            begin = name.split("*")[0]  # a part of the name: parametrized tests have longer ones
            found = any(begin.startswith(test) or test.startswith(begin) for test in tests)
            self.assertTrue(found, f"conftest.py: {file}::{name}")


if __name__ == "__main__":
    run_tests()
