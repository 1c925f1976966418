"""Tensors and models on disk and in other processes: safetensors, weights_only, copies, pickles, queues."""

import copy
import io
import os
import pickle
import tempfile
import unittest
from pathlib import Path

import torch
import torch.multiprocessing as mp
from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.testing._internal.two_tensor import TwoTensor

D = torch.device("netcl", 0)


def double_what_comes(inbox, outbox):
    """In another process: doubles a tensor and a parameter, and reports the parameter's type."""
    tensor, parameter = inbox.get()
    outbox.put((tensor * 2, (type(parameter).__name__, parameter.device.type, parameter.requires_grad)))
    inbox.get()  # stay until the other process has taken it


class TestSerialization(TestCase):
    def tensors(self):
        x = torch.randn(3, 4)
        dtypes = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)
        return {str(dtype): x.to(dtype).to(D) for dtype in dtypes}

    def test_weights_only(self):
        base = torch.arange(12.0, device=D)
        given = {**self.tensors(), "view": base.view(3, 4)[:, 1:3], "base": base, "parameter": torch.nn.Parameter(base)}
        buffer = io.BytesIO()
        torch.save(given, buffer)
        for target, device in ((None, D), ("cpu", "cpu"), ("netcl:0", D), (lambda storage, where: storage, "cpu")):
            buffer.seek(0)
            loaded = torch.load(buffer, map_location=target, weights_only=True)
            for name, t in given.items():
                self.assertEqual(loaded[name].device, torch.device(device), name)
                self.assertEqual(loaded[name].cpu(), t.cpu(), name)
            loaded["base"].add_(1)  # views still share
            self.assertEqual(loaded["view"].cpu(), given["view"].cpu() + 1)

    def test_tensors_that_hold_others(self):
        """Such as torchao's weights: "netcl" is the current device, of the tensor and of what it holds."""
        held = TwoTensor(torch.ones(2, 3), torch.zeros(2, 3))
        buffer = io.BytesIO()
        torch.save({"weight": held.to(D), "bias": torch.ones(2, device=D)}, buffer)
        for target, device in (("netcl", D), (torch.device("netcl"), D), ("netcl:0", D), ({"cpu": "cpu"}, D)):
            with self.subTest(target=target):
                buffer.seek(0)
                loaded = torch.load(buffer, map_location=target, weights_only=False)
                self.assertEqual((loaded["weight"].device, loaded["weight"].a.device), (device, device))
                with torch.device("meta"):
                    layer = torch.nn.Linear(3, 2)
                layer.load_state_dict(loaded, assign=True)
                self.assertEqual(layer.weight.a.cpu(), held.a)

    def test_a_checkpoint_of_another_process(self):
        """Written on netcl, resumed by a process without a device, and the reverse."""
        code = (
            "import sys, torch; there = torch.netcl.is_available(); m = torch.nn.Linear(2, 2)\n"
            "if there: m.netcl()\n"
            "o = torch.optim.AdamW(m.parameters(), lr=1e-2)\n"
            "if len(sys.argv) > 2:\n"
            "    state = torch.load(sys.argv[2], weights_only=True, map_location=None if there else 'cpu')\n"
            "    m.load_state_dict(state['m']); o.load_state_dict(state['o'])\n"
            "m(torch.ones(1, 2, device=m.weight.device)).sum().backward(); o.step()\n"
            "torch.save({'m': m.state_dict(), 'o': o.state_dict()}, sys.argv[1])\n"
            "print(o.state[m.weight]['step'].item(), m.weight.device.type)"
        )
        with tempfile.TemporaryDirectory() as folder:
            files = [str(Path(folder) / f"{i}.pt") for i in range(3)]
            visible = os.environ.get("NETCL_VISIBLE_DEVICES")
            environments = [{}, {"NETCL_VISIBLE_DEVICES": "none-such"}, {}]
            outputs = []
            for i, extra in enumerate(environments):
                run = python(code, files[i], *files[max(0, i - 1) : i], **extra)
                self.assertEqual(run.returncode, 0, run.stderr)
                outputs.append(run.stdout.split())
            self.assertEqual(os.environ.get("NETCL_VISIBLE_DEVICES"), visible)
        self.assertEqual(outputs, [["1.0", "netcl"], ["2.0", "cpu"], ["3.0", "netcl"]])

    def test_safetensors(self):
        try:
            import safetensors.torch as safetensors
        except ImportError as e:
            raise unittest.SkipTest("safetensors is not installed; the extra `test` brings it") from e
        given = {k: v for k, v in self.tensors().items() if not v.is_complex()}
        given["transposed"] = torch.randn(3, 4, device=D).t().contiguous()
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "x.safetensors")
            safetensors.save_file(given, path)
            loaded = safetensors.load_file(path)  # it supports only the devices of its list: .to("netcl") afterwards
            self.assertEqual(loaded.keys(), given.keys())
            for name, t in given.items():
                self.assertEqual(loaded[name].dtype, t.dtype)
                self.assertEqual(loaded[name], t.cpu())
            model, other = torch.nn.Linear(3, 4).to(D), torch.nn.Linear(3, 4).to(D)
            safetensors.save_model(model, path)
            safetensors.load_model(other, path)
            self.assertEqual(other.weight, model.weight)
            self.assertEqual(other.weight.device, D)

    def test_safetensors_to_the_device(self):
        """One copy per tensor, from the mapped file to the device, and the errors of safetensors."""
        try:
            from safetensors import SafetensorError
            from safetensors.torch import save_file
        except ImportError as e:
            raise unittest.SkipTest("safetensors is not installed; the extra `test` brings it") from e
        from torch_netcl.safetensors import load_file

        given = {k: v.cpu().contiguous() for k, v in self.tensors().items() if not v.is_complex()}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.safetensors"
            save_file(given, path)
            torch.netcl.synchronize()
            torch.netcl.reset_peak_memory_stats()
            before = torch.netcl.memory_allocated()
            loaded = load_file(path)
            needed = torch.netcl.memory_allocated() - before
            self.assertEqual(torch.netcl.max_memory_allocated() - before, needed)
            self.assertEqual(loaded.keys(), given.keys())
            for name, t in given.items():
                self.assertEqual(loaded[name].device, D)
                self.assertEqual(loaded[name].dtype, t.dtype)
                self.assertEqual(loaded[name].cpu(), t)
            self.assertEqual(load_file(str(path), device="cpu"), given)
            with self.assertRaises(FileNotFoundError):
                load_file(Path(folder) / "none")
            path.write_bytes(b"no such format")
            with self.assertRaises(SafetensorError):
                load_file(path)

    def test_copies_and_pickles(self):
        x = torch.randn(4, 5, device=D).t().requires_grad_()
        for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            self.assertEqual((made.device, made.stride(), made.requires_grad), (D, x.stride(), True))
            self.assertEqual(made, x)
            self.assertNotEqual(made.data_ptr(), x.data_ptr())
        shared = {"a": x, "b": x.detach()[1:]}
        made = copy.deepcopy(shared)
        made["b"].zero_()
        self.assertEqual(made["a"][1:].abs().sum().item(), 0)  # they still share memory
        self.assertGreater(x.abs().sum().item(), 0)
        module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).to(D)
        for made in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            self.assertEqual(made.state_dict(), module.state_dict())
        storage = x.untyped_storage()
        self.assertEqual(copy.deepcopy(storage).tolist(), storage.tolist())

    def test_handed_to_a_process(self):
        context = mp.get_context("spawn")
        inbox, outbox = context.Queue(), context.Queue()
        process = context.Process(target=double_what_comes, args=(inbox, outbox))
        process.start()
        x = torch.arange(6.0, device=D).reshape(2, 3).t()
        inbox.put((x, torch.nn.Parameter(torch.ones(2, device=D))))
        doubled, parameter = outbox.get(timeout=300)
        self.assertEqual(doubled.device, D)
        self.assertEqual(doubled.cpu(), x.cpu() * 2)
        self.assertEqual(parameter, ("Parameter", "netcl", True))
        inbox.put(None)
        process.join(60)
        self.assertEqual(process.exitcode, 0)
        from multiprocessing.reduction import ForkingPickler

        with self.assertRaisesRegex(RuntimeError, "detach"):
            ForkingPickler.dumps(x.clone().requires_grad_() * 2)


if __name__ == "__main__":
    run_tests()
