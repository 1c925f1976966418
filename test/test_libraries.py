"""The code of docs/libraries.md, on netcl and on the CPU: accelerate, transformers.Trainer and Lightning."""

import importlib.util
import os
import re
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

import torch
from torch.testing._internal.common_utils import TestCase, run_tests

PAGE = Path(__file__).resolve().parents[1] / "docs/libraries.md"
BLOCKS = re.findall(r"^## (\S+)\n.*?```python\n(.*?)```", PAGE.read_text(), re.S | re.M)


def installed(*names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"pip install {' '.join(missing)}")


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestLibraries(TestCase):
    def run_block(self, library, device):
        """Its losses, one a step."""
        code = dict(BLOCKS)[library]
        if device == "cpu":
            code = code.replace('"netcl"', '"cpu"')
            code = re.sub(r"strategy=netcl_strategy\(.*?\)", 'accelerator="cpu", precision="bf16-mixed"', code)
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the libraries' own, of each other
            os.chdir(folder)
            try:
                namespace = {"__name__": library}
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
        # Both round each product's inputs and result to bfloat16 (2^-9 of them), a dozen times on the way to a loss
        # near 1; AdamW then moves a parameter whose gradient is near 0 by up to lr in either direction.
        self.assertEqual(got, expected, rtol=0, atol=12 * 2**-9)
        self.assertLess(sum(got[-4:]), sum(got[:4]))

    @installed("accelerate")
    def test_accelerate(self):
        from accelerate.state import AcceleratorState

        self.addCleanup(AcceleratorState._reset_state, True)
        with mock.patch.object(self, "run_block", wraps=self.run_block) as run:
            run.side_effect = lambda *_: AcceleratorState._reset_state(True) or mock.DEFAULT
            self.check("accelerate", 12)

    @installed("accelerate", "transformers")
    def test_trainer(self):
        from accelerate.state import AcceleratorState

        self.addCleanup(AcceleratorState._reset_state, True)
        self.check("transformers.Trainer", 8)

    @installed("accelerate", "transformers", "safetensors")
    def test_from_pretrained(self):
        self.check("from_pretrained", 12)

    @installed("lightning")
    def test_lightning(self):
        self.check("Lightning", 12)

    @installed("lightning")
    def test_strategy(self):
        from torch_netcl.lightning import NetclAccelerator, netcl_strategy

        count = torch.netcl.device_count()
        self.assertEqual(NetclAccelerator.parse_devices(-1), list(range(count)))
        self.assertEqual(NetclAccelerator.parse_devices("0,"), [0])
        self.assertEqual(NetclAccelerator.parse_devices([0]), [0])
        with self.assertRaisesRegex(ValueError, "not cpu"):
            NetclAccelerator().setup_device(torch.device("cpu"))
        best = torch.netcl.get_amp_supported_dtype()[0]
        self.assertEqual(netcl_strategy().precision_plugin.scaler is not None, best == torch.float16)
        self.assertEqual(netcl_strategy(dtype=torch.float16).precision_plugin.scaler.state_dict()["scale"], 2.0**16)
        self.assertEqual(netcl_strategy(dtype=torch.float32).root_device, torch.device("netcl", 0))
        with self.assertRaisesRegex(ValueError, "torch.float64: choose"):
            netcl_strategy(dtype=torch.float64)
        with self.assertRaisesRegex(ValueError, "there are"):
            netcl_strategy(count)


if __name__ == "__main__":
    run_tests()
