"""The code of docs/libraries.md, on netcl and on the CPU: accelerate, transformers.Trainer and Lightning."""

import importlib.util
import os
import pickle
import re
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

import torch
from common import allow_fp16
from torch.testing._internal.common_utils import TestCase, run_tests

PAGE = Path(__file__).resolve().parents[1] / "docs/libraries.md"
BLOCKS = re.findall(r"^## (\S+)\n(?:(?!^## ).)*?```python\n(.*?)```", PAGE.read_text(), re.S | re.M)


def installed(*names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"pip install {' '.join(missing)}")


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestLibraries(TestCase):
    def run_block(self, library, device, namespace=None):
        """Runs a page's code block, in the given namespace; returns its losses, one per step."""
        code = dict(BLOCKS)[library]
        if device == "cpu":
            code = code.replace('"netcl"', '"cpu"').replace("Accelerator(", "Accelerator(cpu=True, ")
            code = code.replace("TrainingArguments(\n", "TrainingArguments(\n    use_cpu=True, output_dir=")
            code = re.sub(r"strategy=netcl_strategy\(.*?\)", 'accelerator="cpu", precision="bf16-mixed"', code)
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the libraries' own warnings
            os.chdir(folder)
            try:
                namespace = {} if namespace is None else namespace
                namespace["__name__"] = library
                exec(compile(code, f"{PAGE.name} ({library}, {device})", "exec"), namespace)
            finally:
                os.chdir(here)
        self.assertEqual(namespace["device"].type, device)
        return namespace["losses"]

    def check(self, library, steps):
        torch.netcl.reset_cpu_fallback_ops()
        got, expected = self.run_block(library, "netcl"), self.run_block(library, "cpu")
        self.assertEqual(dict(torch.netcl.cpu_fallback_ops()), {})
        self.assertEqual(len(got), steps)
        # Both round each product's inputs and result to bfloat16 (2^-9 of them), about a dozen times until the loss,
        # which is near 1. AdamW then moves a parameter whose gradient is near 0 by up to lr in either direction.
        self.assertEqual(got, expected, rtol=0, atol=12 * 2**-9)
        self.assertLess(sum(got[-4:]), sum(got[:4]))

    @installed("accelerate")
    def test_accelerate(self):
        from accelerate.state import AcceleratorState

        self.addCleanup(AcceleratorState._reset_state, True)
        with mock.patch.object(self, "run_block", wraps=self.run_block) as run:
            run.side_effect = lambda *_: AcceleratorState._reset_state(True) or mock.DEFAULT
            self.check("accelerate", 12)

    @installed("accelerate")
    def test_accelerate_fp16(self):
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState

        from torch_netcl.accelerate import use_fp16

        self.addCleanup(AcceleratorState._reset_state, True)
        with mock.patch.dict(os.environ, ACCELERATE_TORCH_DEVICE="cpu"):
            AcceleratorState._reset_state(True)
            with self.assertRaisesRegex(ValueError, "ACCELERATE_TORCH_DEVICE"):
                use_fp16(Accelerator())
        with mock.patch.dict(os.environ, ACCELERATE_TORCH_DEVICE="netcl"):
            AcceleratorState._reset_state(True)
            accelerator = Accelerator()
            if torch.float16 not in torch.netcl.amp.autocast_dtypes():
                with self.assertRaisesRegex(RuntimeError, "cl_khr_fp16"):
                    use_fp16(accelerator)
            allow_fp16(self)
            model = torch.nn.Linear(8, 4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            use_fp16(accelerator, init_scale=1024.0, growth_interval=2)
            model, optimizer = accelerator.prepare(model, optimizer)
            start = model.weight.clone()
            x = torch.randn(16, 8, device="netcl")
            skipped = []
            for factor in (1.0, float("inf"), 1.0, 1.0):
                optimizer.zero_grad()
                y = model(x)
                self.assertEqual(y.dtype, torch.float32)  # accelerate converts what forward returns
                with accelerator.autocast():
                    self.assertEqual((x @ x.T).dtype, torch.float16)
                accelerator.backward(y.square().mean() * factor)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                skipped.append(accelerator.optimizer_step_was_skipped)
            self.assertEqual(skipped, [False, True, False, False])
            self.assertEqual(accelerator.scaler.get_scale(), 1024.0)  # halved once, doubled after two good steps
            self.assertTrue(model.weight.isfinite().all())
            self.assertNotEqual(model.weight, start)
            with self.assertRaisesRegex(RuntimeError, "before accelerator.prepare"):
                use_fp16(accelerator)

    @installed("accelerate", "transformers")
    def test_trainer_fp16(self):
        from accelerate.state import AcceleratorState

        allow_fp16(self)
        self.addCleanup(AcceleratorState._reset_state, True)
        AcceleratorState._reset_state(True)
        code = dict(BLOCKS)["transformers.Trainer"].replace(", bf16=True", "")
        code = code.replace("trainer.train()", "from torch_netcl.accelerate import use_fp16\n\n"
                            "use_fp16(trainer.accelerator)\ntrainer.train()\nscaler = trainer.accelerator.scaler")
        with mock.patch.dict(globals(), BLOCKS=[("fp16", code)]):
            losses = self.run_block("fp16", "netcl")
        AcceleratorState._reset_state(True)
        # Both precisions round at the same places; float16 to 2^-12, bfloat16 to 2^-9.
        self.assertEqual(losses, self.run_block("transformers.Trainer", "cpu"), rtol=0, atol=12 * 2**-9)

    @installed("accelerate", "transformers")
    def test_trainer_logs_its_scale(self):
        """A skipped step is counted, and its gradient named."""
        from accelerate.state import AcceleratorState

        allow_fp16(self)
        self.addCleanup(AcceleratorState._reset_state, True)
        AcceleratorState._reset_state(True)
        code = dict(BLOCKS)["transformers.Trainer"].replace(", bf16=True", "")
        code = code.replace("trainer.train()", """
from torch_netcl.accelerate import use_fp16
from torch_netcl.transformers import AmpCallback

use_fp16(trainer.accelerator, init_scale=1024.0)
callback = AmpCallback(trainer)
trainer.add_callback(callback)
calls = []
trainer.model.classifier.bias.register_hook(lambda g: g * (float("inf") if calls.append(0) or len(calls) == 3 else 1))
trainer.train()
skips, history = callback.skips, trainer.state.log_history""")
        with mock.patch.dict(globals(), BLOCKS=[("fp16", code)]):
            namespace = {}
            self.run_block("fp16", "netcl", namespace)
        self.assertEqual([(step, found[0].name) for step, found in namespace["skips"]], [(2, "classifier.bias")])
        scales = [entry["amp_scale"] for entry in namespace["history"] if "amp_scale" in entry]
        self.assertEqual(scales, [1024.0] * 2 + [512.0] * 6)
        self.assertEqual([e["amp_skipped"] for e in namespace["history"] if "amp_skipped" in e], [0] * 2 + [1] * 6)

    @installed("lightning")
    def test_lightning_logs_its_scale(self):
        allow_fp16(self)
        code = dict(BLOCKS)["Lightning"].replace("dtype=torch.bfloat16", "dtype=torch.float16")
        code = code.replace("trainer = lightning.Trainer(", """
from torch_netcl.lightning import AmpCallback

calls, callback, rows = [], AmpCallback(), []
model.net[2].bias.register_hook(lambda g: g * (float("inf") if calls.append(0) or len(calls) == 3 else 1))
trainer = lightning.Trainer(
    callbacks=[callback, lightning.pytorch.callbacks.LambdaCallback(on_train_batch_end=lambda t, *_: rows.append(
        (t.callback_metrics["amp/scale"].item(), t.callback_metrics["amp/skipped"].item())))],""")
        with mock.patch.dict(globals(), BLOCKS=[("fp16", code)]):
            namespace = {}
            self.run_block("fp16", "netcl", namespace)
        self.assertEqual([found[0].name for _, found in namespace["callback"].skips], ["net.2.bias"])
        self.assertEqual([skipped for _, skipped in namespace["rows"]], [0, 0, 1] + [0] * 9)
        self.assertEqual([scale for scale, _ in namespace["rows"]], [65536.0] * 2 + [32768.0] * 10)

    @installed("accelerate", "transformers")
    def test_trainer(self):
        from accelerate.state import AcceleratorState

        self.addCleanup(AcceleratorState._reset_state, True)
        self.check("transformers.Trainer", 8)

    @installed("accelerate", "transformers", "safetensors")
    def test_from_pretrained(self):
        self.check("from_pretrained", 12)

    @installed("peft", "transformers")
    def test_peft(self):
        self.check("peft", 8)

    @installed("diffusers")
    def test_diffusers(self):
        self.check("diffusers", 8)

    @installed("diffusers")
    def test_diffusers_group_offload(self):
        """Weights wait on the host until their layer runs; with a stream, the next layer's are copied meanwhile."""
        from diffusers.hooks import apply_group_offloading

        for use_stream in (False, True):
            torch.manual_seed(0)
            model, x = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6))), torch.randn(4, 64)
            with torch.no_grad():
                expected = model(x)
                apply_group_offloading(
                    model, torch.device("netcl"), torch.device("cpu"), offload_type="leaf_level", use_stream=use_stream
                )
                for _ in range(10):
                    self.assertEqual(model(x.to("netcl")).cpu(), expected, rtol=1e-5, atol=1e-5)

    @installed("lightning")
    def test_lightning(self):
        self.check("Lightning", 12)

    @installed("pytorch_lightning")
    def test_pytorch_lightning(self):
        # The same page, as programs for the older name have it.
        names = {"lightning.LightningModule": "pytorch_lightning.LightningModule", "lightning.Trainer":
                 "pytorch_lightning.Trainer", "import lightning\n": "import pytorch_lightning\n",
                 "torch_netcl.lightning": "torch_netcl.pytorch_lightning"}
        code = dict(BLOCKS)["Lightning"]
        for old, new in names.items():
            self.assertIn(old, code)
            code = code.replace(old, new)
        with mock.patch.dict(globals(), BLOCKS=[("pytorch_lightning", code)]):
            self.check("pytorch_lightning", 12)

    def test_both_lightnings(self):
        for name, package in (("lightning", "lightning"), ("pytorch_lightning", "pytorch_lightning")):
            if importlib.util.find_spec(package):
                with self.subTest(package):
                    self.check_strategy(importlib.import_module(f"torch_netcl.{name}"))

    def check_strategy(self, module):
        NetclAccelerator, netcl_strategy = module.NetclAccelerator, module.netcl_strategy
        self.assertIs(pickle.loads(pickle.dumps(NetclAccelerator)), NetclAccelerator)
        count = torch.netcl.device_count()
        self.assertEqual(NetclAccelerator.parse_devices(-1), list(range(count)))
        self.assertEqual(NetclAccelerator.parse_devices("0,"), [0])
        self.assertEqual(NetclAccelerator.parse_devices([0]), [0])
        with self.assertRaisesRegex(ValueError, "not cpu"):
            NetclAccelerator().setup_device(torch.device("cpu"))
        best = torch.netcl.amp.autocast_dtypes()[0]
        self.assertEqual(netcl_strategy().precision_plugin.scaler is not None, best == torch.float16)
        self.assertEqual(netcl_strategy(dtype=torch.float16).precision_plugin.scaler.state_dict()["scale"], 2.0**16)
        self.assertEqual(netcl_strategy(dtype=torch.float32).root_device, torch.device("netcl", 0))
        with self.assertRaisesRegex(ValueError, "torch.float64: choose"):
            netcl_strategy(dtype=torch.float64)
        with self.assertRaisesRegex(ValueError, "there are"):
            netcl_strategy(count)


if __name__ == "__main__":
    run_tests()
