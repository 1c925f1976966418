"""Faults of the kernel cache and of drivers: wrong files, files in the way, files written by two processes at once."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests

from torch_netcl import _opencl

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"


class TestKernelCache(TestCase):
    CODE = """
import json, torch
x = torch.arange(64., device="netcl").reshape(8, 8)
result = [(x * 3).sum().item(), (x @ x).sum().item(), x.softmax(1).sum().item()]
print(json.dumps([result, dict(torch.netcl.kernel_cache_stats())]))
"""

    def result(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_processes_at_once(self):
        for _ in range(100 if FULL else 1):
            with tempfile.TemporaryDirectory() as folder:
                env = {**os.environ, "NETCL_CACHE_DIR": folder}
                command = [sys.executable, "-c", self.CODE]
                running = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)]
                results = [json.loads(p.communicate(timeout=300)[0])[0] for p in running]
                self.assertEqual(results, [results[0]] * 3)
                self.assertEqual(
                    [p.name for p in Path(folder).iterdir() if p.suffix not in (".bin", ".icd") and not p.is_dir()], []
                )
                again, stats = self.result(python(self.CODE, NETCL_CACHE_DIR=folder))
                self.assertEqual((again, stats["compiled"]), (results[0], 0))

    def test_folder_that_others_may_write_to(self):
        with tempfile.TemporaryDirectory() as folder:
            self.result(python(self.CODE, NETCL_CACHE_DIR=folder))
            os.chmod(folder, 0o777)
            _, stats = self.result(python(self.CODE, NETCL_CACHE_DIR=folder))
            self.assertEqual(stats["disk_hits"], 0)

    def test_nothing_is_written_where_it_would_not_be_read(self):
        """Nor through links, nor over files that other users planted; and there is one warning."""
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            done = python(self.CODE, NETCL_CACHE_DIR=folder)
            self.result(done)
            self.assertEqual([p for p in Path(folder).iterdir() if p.suffix == ".bin"], [])
            self.assertEqual(done.stderr.count("compiled kernels are not kept"), 1, done.stderr)
            self.assertEqual(list(Path(folder).glob("torch_netcl-icd-*")), [])  # what it names would be loaded
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
            self.result(python(self.CODE, NETCL_CACHE_DIR=folder))
            entries = list(Path(folder).glob("*.bin"))
            for entry in entries:
                entry.rename(Path(other) / entry.name)
                entry.symlink_to(Path(other) / entry.name)
            before = {p.name: p.read_bytes() for p in Path(other).iterdir()}
            _, stats = self.result(python(self.CODE, NETCL_CACHE_DIR=folder))
            self.assertEqual((stats["disk_hits"], stats["compiled"]), (0, len(entries)))
            self.assertEqual({p.name: p.read_bytes() for p in Path(other).iterdir()}, before)
            self.assertFalse(any(entry.is_symlink() for entry in entries))

    # The process says who it is, and begins when it is told to.
    WAITING = "import os\nprint(os.getpid(), flush=True)\ninput()\n" + CODE

    def started(self, folder, *prefix):
        """A process with its own id on its first line, which waits for a line before it uses the cache."""
        env = {**os.environ, "NETCL_CACHE_DIR": folder}
        command = [*prefix, sys.executable, "-c", self.WAITING]
        child = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return child, int(child.stdout.readline())

    def test_links_with_the_process_id(self):
        """What others planted under a name that can be guessed is not written to."""
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as folder:
            good, _ = self.result(python(self.CODE, NETCL_CACHE_DIR=first))
            names = sorted(p.name for p in Path(first).glob("*.bin"))
            self.assertGreater(len(names), 0)
            victim = Path(first) / "victim"
            victim.write_bytes(b"of value")
            child, pid = self.started(folder)
            links = [Path(folder) / (name + end) for name in names for end in (f".{pid}", f".{pid}.tmp", ".tmp")]
            for link in links:
                link.symlink_to(victim)
            said, _ = child.communicate("\n", timeout=300)
            self.assertEqual((child.returncode, json.loads(said)[0]), (0, good))
            self.assertEqual(victim.read_bytes(), b"of value")
            self.assertTrue(all(link.is_symlink() for link in links))
            written = [Path(folder) / name for name in names]
            self.assertTrue(all(p.is_file() and not p.is_symlink() for p in written))

    def test_two_processes_with_one_id(self):
        """As in two containers that share the folder: both are the first process of a namespace, and so was one that
        was killed while it wrote."""
        unshare = ["unshare", "--pid", "--fork"] + ["--map-root-user"] * (os.geteuid() != 0)
        if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("this process may not make a namespace of process ids")
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as folder:
            good, _ = self.result(python(self.CODE, NETCL_CACHE_DIR=first))
            left = sorted(Path(folder) / f"{p.name}.1" for p in Path(first).glob("*.bin"))
            for path in left:
                path.write_bytes(b"half")
            children = [self.started(folder, *unshare) for _ in range(2)]
            self.assertEqual([pid for _, pid in children], [1, 1])
            for child, _ in children:
                child.stdin.write("\n")
                child.stdin.flush()
            results = [json.loads(child.communicate(timeout=300)[0])[0] for child, _ in children]
            self.assertEqual(results, [good, good])
            others = [p for p in Path(folder).iterdir() if p.suffix not in (".bin", ".icd") and not p.is_dir()]
            self.assertEqual([(p, p.read_bytes()) for p in sorted(others)], [(p, b"half") for p in left])
            again, stats = self.result(python(self.CODE, NETCL_CACHE_DIR=folder))
            self.assertEqual((again, stats["compiled"]), (good, 0))

    def test_flipped_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            good, _ = self.result(python(self.CODE, NETCL_CACHE_DIR=folder))
            rng = random.Random(0)
            for entry in sorted(Path(folder).glob("*.bin")):
                data = bytearray(entry.read_bytes())
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                entry.write_bytes(data)
            again, stats = self.result(python(self.CODE, NETCL_CACHE_DIR=folder))
            self.assertEqual((again, stats["disk_hits"]), (good, 0))

    def on_a_file_system_of_its_own(self, options):
        """The results of two runs in a row, with the cache on a tmpfs that is mounted with `options`."""
        with tempfile.TemporaryDirectory() as folder:
            unshare = ["unshare", "--mount"] + ["--map-root-user"] * (os.geteuid() != 0)
            mount = [
                *unshare,
                "sh",
                "-c",
                f'mount -t tmpfs -o mode=0700,{options} tmpfs "$0" && "$@" && exec "$@"',
                folder,
            ]
            if not shutil.which("unshare") or subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
                self.skipTest("this process may not mount a file system")
            env = {**os.environ, "NETCL_CACHE_DIR": folder}
            command = [*mount, sys.executable, "-c", self.CODE]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [json.loads(line) for line in done.stdout.splitlines()]

    def test_full_disk(self):
        (first, _), (second, stats) = self.on_a_file_system_of_its_own("size=16k")
        self.assertEqual(first, second)
        self.assertGreater(stats["compiled"], 0)  # there was no room for all of them

    def test_read_only_disk(self):
        (first, _), (second, _) = self.on_a_file_system_of_its_own("ro")  # a temporary folder is used
        self.assertEqual(first, second)

    def test_another_driver(self):
        """A driver does not get programs that another one built."""
        with tempfile.TemporaryDirectory() as folder:
            platforms = [r.library for r in _opencl.find_runtimes()]
            if len(platforms) < 2:
                self.skipTest("needs two runtimes")
            results = []
            for library in platforms:
                icd = Path(folder) / "vendors" / "only.icd"
                icd.parent.mkdir(exist_ok=True)
                icd.write_text(library + "\n")
                env = {"OCL_ICD_VENDORS": str(icd.parent), "NETCL_VISIBLE_DEVICES": "0", "NETCL_CACHE_DIR": folder}
                result, stats = self.result(python(self.CODE, **env))
                self.assertEqual(stats["disk_hits"], 0)
                results.append(result)
            torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=0)  # of sums in float32

    @unittest.skipIf(os.geteuid() == 0, "root may write to every folder")
    def test_read_only_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o500)
            self.result(python(self.CODE, NETCL_CACHE_DIR=folder))
            self.assertEqual(list(Path(folder).glob("*.bin")), [])


class TestDrivers(TestCase):
    def test_broken_driver_among_good_ones(self):
        """A missing file, an empty one, a text, and a library that is no driver: the good driver is found."""
        runtimes = [r.library for r in _opencl.find_runtimes()]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "text.so").write_text("not a library")
            libraries = ["/no/such/libdriver.so", "", str(Path(folder) / "text.so"), "libm.so.6", *runtimes]
            vendors = Path(folder) / "vendors"
            vendors.mkdir()
            for i, library in enumerate(libraries):
                (vendors / f"{i:02}.icd").write_text(library + "\n")
            code = "import torch; print((torch.ones(3, device='netcl') + 1).sum().item())"
            done = python(code, OCL_ICD_VENDORS=str(vendors))
            self.assertEqual((done.returncode, done.stdout), (0, "6.0\n"), done.stderr)

    def test_driver_that_is_gone(self):
        """A driver's .icd file is removed between two runs: the other driver's devices remain."""
        libraries = [r.library for r in _opencl.find_runtimes()]
        if len(libraries) < 2:
            self.skipTest("needs two runtimes")
        code = "import torch; print(torch.netcl.device_count(), (torch.ones(3, device='netcl') + 1).sum().item())"
        with tempfile.TemporaryDirectory() as folder:
            for i, library in enumerate(libraries):
                (Path(folder) / f"{i}.icd").write_text(library + "\n")
            env = {"OCL_ICD_VENDORS": folder, "NETCL_VISIBLE_DEVICES": None, "NETCL_SUBDEVICES": None}
            for left in range(len(libraries), 0, -1):
                done = python(code, **env)
                self.assertEqual((done.returncode, done.stdout), (0, f"{left} 6.0\n"), done.stderr)
                (Path(folder) / f"{left - 1}.icd").unlink()
            done = python("import torch; print(torch.netcl.is_available())", **env)
            self.assertEqual((done.returncode, done.stdout), (0, "False\n"), done.stderr)

    def test_imports_in_a_row(self):
        code = """
import os, sys
for i in range(COUNT):
    pid = os.fork()
    if pid == 0:
        import torch
        ok = not torch.netcl.is_available() or torch.netcl.device_count() > 0
        os._exit(0 if ok else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, (i, status)
""".replace("COUNT", "100" if FULL else "3")
        done = python(code, timeout=1200)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    run_tests()
