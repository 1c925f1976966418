"""Compares torch.netcl with torch.cuda: the table in docs/api.md, and functions that other tests do not use."""

import gc
import re
import sys
import unittest
from pathlib import Path

import torch
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import api_reference  # noqa: E402
import api_table  # noqa: E402

D = torch.device("netcl", 0)


class TestTable(TestCase):
    @unittest.skipIf(not torch.__version__.startswith("2.13"), "the table is of torch 2.13")
    def test_document_is_current(self):
        self.maxDiff = None
        expected = api_table.document()
        self.assertEqual((ROOT / "docs" / "api.md").read_text(), expected, "run tools/api_table.py > docs/api.md")

    def test_public_names_have_docstrings(self):
        for name, text in api_table.extra():
            self.assertGreater(len(text), 10, name)


    def test_reference_is_current(self):
        page = (ROOT / "docs" / "reference.md").read_text()
        self.maxDiff = None
        self.assertEqual(page, api_reference.document(), "run tools/api_reference.py > docs/reference.md")
        # The parts of torch.netcl are modules with headings of their own; one name is documented with its module.
        elsewhere = {"amp", "graphs", "memory", "random", "streams", "default_generators", "get_amp_supported_dtype"}
        for module, names in {
            "torch.netcl": set(torch.netcl.__all__) - elsewhere,
            "torch.netcl.amp": set(torch.netcl.amp.__all__),
            "torch.netcl.amp.training": set(torch.netcl.amp.training.__all__),
            "torch_netcl.interop": set(torch_netcl.interop.__all__),
        }.items():
            found = set(re.findall(rf"^#### {re.escape(module)}\.(\w+)$", page, re.M))
            self.assertEqual(names - found, set())
            self.assertEqual(found - names - {"CompiledKernel", "LocalMemory"}, set())  # torch_netcl's own
        self.assertIn("(reference.md)", (ROOT / "docs" / "index.md").read_text())

    def test_absent_names_say_why(self):
        for name, kind, _ in api_table.rows():
            if kind in ("refused", "not applicable"):
                self.assertFalse(hasattr(torch.netcl, name), name)
                with self.assertRaisesRegex(AttributeError, rf"^module 'torch.netcl' has no attribute '{name}': \w"):
                    getattr(torch.netcl, name)
        with self.assertRaisesRegex(AttributeError, "^module 'torch.netcl' has no attribute 'nonsense'$"):
            torch.netcl.nonsense  # noqa: B018

    def test_all(self):
        """`from torch.netcl import *` gives what the table lists, and nothing else."""
        names = torch.netcl.__all__
        self.assertEqual(len(names), len(set(names)))
        listed = {name for name, kind, _ in api_table.rows() if kind in ("same", "differs")}
        self.assertEqual(set(names), listed | {name for name, _ in api_table.extra()})


class TestRegistrations(TestCase):
    def test_all_are_of_operators_that_exist(self):
        """The dispatcher accepts a wrong overload name, but then the operator runs on the CPU."""
        found = [text for text in torch._C._dispatch_find_dangling_impls() if "PrivateUse1" in text]
        # torchvision's operators are registered when it is imported.
        self.assertEqual([text for text in found if not text.startswith("name: torchvision::")], [])

    def test_none_that_the_cpu_cannot_stand_in_for(self):
        """The fallback gives copies of the tensors to the CPU, so a view, or a change of the storage, would be that of
        a copy. All such operators must have kernels."""
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        composite = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
        without = set()
        for name in torch._C._dispatch_get_all_op_names():
            if not name.startswith("aten::") or any(has(name, key) for key in ("PrivateUse1", *composite)):
                continue
            if not has(name, "CPU") and (not has(name, "CUDA") or re.search("cudnn|miopen|cslt", name)):
                continue  # these use CUDA's libraries
            schema = torch._C._get_schema(*(name.split(".") + [""])[:2])
            takes = any("Tensor" in str(a.type) for a in schema.arguments)
            gives = any("Tensor" in str(r.type) for r in schema.returns)
            view = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
            if view or (takes and not gives):
                without.add(name)
        self.assertEqual(without, set())


class TestApi(TestCase):
    def test_methods_and_storages(self):
        x = torch.arange(4.0)
        self.assertFalse(x.is_netcl)
        y = x.netcl()
        self.assertTrue(y.is_netcl and y.untyped_storage().is_netcl)
        self.assertEqual(x.untyped_storage().netcl().device, D)
        self.assertEqual(y.untyped_storage().cpu().tolist(), x.untyped_storage().tolist())
        self.assertEqual(torch.nn.LSTM(2, 2).netcl().weight_hh_l0.device, D)
        packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(2, 3, 1), torch.tensor([3, 2]), batch_first=True)
        self.assertTrue(packed.netcl().data.is_netcl)

    def test_device_contexts(self):
        with torch.device("netcl"):
            self.assertEqual(torch.empty(1).device, D)
        with torch.netcl.device_of(torch.empty(1, device=D)), torch.netcl.device(-1):
            self.assertEqual(torch.netcl.current_device(), 0)
        self.assertFalse(torch.netcl.can_device_access_peer(0, 0))
        major, minor = torch.netcl.get_device_capability()
        self.assertIn(f"OpenCL {major}.{minor}", torch.netcl.get_device_properties().version)

    def test_fork_rng(self):
        torch.netcl.manual_seed(3)
        expected = torch.randn(5, device=D)
        torch.netcl.manual_seed(3)
        with torch.random.fork_rng(device_type="netcl"):
            torch.manual_seed(11)
            torch.randn(9, device=D)
        self.assertEqual(torch.randn(5, device=D), expected, rtol=0, atol=0)
        self.assertEqual(len(torch.netcl.default_generators), torch.netcl.device_count())
        self.assertEqual(torch.netcl.default_generators[0].initial_seed(), torch.netcl.initial_seed())

    def test_memory_snapshot(self):
        gc.collect()  # nothing of an earlier test may be freed meanwhile
        before = torch.netcl.memory_allocated()
        kept = torch.empty(3000, dtype=torch.uint8, device=D)
        large = torch.empty(30 << 20, dtype=torch.uint8, device=D)
        segments = torch.netcl.memory_snapshot()
        self.assertEqual(sum(s["total_size"] for s in segments), torch.netcl.memory_reserved())
        self.assertEqual(sum(s["allocated_size"] for s in segments), torch.netcl.memory_allocated())
        blocks = {b["address"]: b for s in segments for b in s["blocks"]}
        mine = blocks[kept.data_ptr()]
        self.assertEqual((mine["state"], mine["size"], mine["requested_size"]), ("active_allocated", 3072, 3000))
        self.assertEqual(blocks[large.data_ptr()]["size"], 30 << 20)
        for s in segments:  # blocks fill their segment from its start, one after another
            at = s["address"]
            for b in s["blocks"]:
                self.assertEqual(b["address"], at)
                at += b["size"]
            self.assertLessEqual(at, s["address"] + s["total_size"])
        self.assertEqual(torch.netcl.memory_allocated() - before, 3072 + (30 << 20))
        nested = torch.netcl.memory_stats_as_nested_dict()
        self.assertEqual(nested["allocated_bytes"]["all"]["current"], torch.netcl.memory_allocated())
        self.assertEqual(torch.netcl.get_per_process_memory_fraction(), 1.0)

    def test_former_names(self):
        with self.assertWarnsRegex(FutureWarning, "memory_reserved"):
            self.assertEqual(torch.netcl.memory_cached(), torch.netcl.memory_reserved())
        with self.assertWarnsRegex(FutureWarning, "max_memory_reserved"):
            self.assertEqual(torch.netcl.max_memory_cached(), torch.netcl.max_memory_reserved())
        for reset in (torch.netcl.reset_max_memory_allocated, torch.netcl.reset_max_memory_cached):
            with self.assertWarnsRegex(FutureWarning, "reset_peak_memory_stats"):
                reset()
            self.assertEqual(torch.netcl.max_memory_allocated(), torch.netcl.memory_allocated())
        self.assertEqual((torch.netcl.get_arch_list(), torch.netcl.get_gencode_flags()), ([], ""))
        self.assertEqual((torch.netcl.get_allocator_backend(), torch.netcl.ipc_collect()), ("native", None))
        self.assertFalse(torch.netcl.is_current_stream_capturing())

    def test_deterministic_algorithms(self):
        """Sums of floats whose order matters, and several writes to one element, give the same bits every time."""
        generator = torch.Generator().manual_seed(0)
        n = 20_000
        index = torch.randint(0, 3, (n,), generator=generator).to(D)
        values = (torch.randn(n, generator=generator) * 1e4).to(D)
        table = torch.randn(3, 4, generator=generator).to(D).requires_grad_()
        rows = torch.randn(n, 4, generator=generator).to(D)

        def results():
            zero = torch.zeros(3, device=D)
            table.grad = None
            torch.nn.functional.embedding(index, table).backward(rows)
            return [
                zero.index_add(0, index, values),
                zero.scatter_add(0, index, values),
                zero.index_put((index,), values, accumulate=True),
                zero.index_put((index,), values),
                zero.scatter(0, index, values),
                torch.cumsum(values, 0),
                table.grad.clone(),
            ]

        was = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            first = results()
            for _ in range(3):
                for a, b in zip(first, results(), strict=True):
                    self.assertEqual(a, b, rtol=0, atol=0)
            # The last write wins, as on the CPU.
            self.assertEqual(first[3].cpu(), torch.stack([values.cpu()[index.cpu() == i][-1] for i in range(3)]))
            # New memory is filled, so that reading it is reproducible too.
            self.assertTrue(torch.empty(100, device=D).isnan().all().item())
        finally:
            torch.use_deterministic_algorithms(was)


if __name__ == "__main__":
    run_tests()
