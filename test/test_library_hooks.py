"""Libraries that know no netcl take it as typed (torch_netcl/_library_hooks.py), instead of the CPU in silence."""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from pathlib import Path
from unittest import mock

import torch
from torch.testing._internal.common_utils import TestCase, run_tests

from torch_netcl._after_import import after_import
from torch_netcl._library_hooks import HOOKS

ROOT = Path(__file__).resolve().parents[1]

#: What the functions of these libraries do where there is no GPU, for machines on which they are not installed.
STAND_INS = {
    "sentence_transformers/util.py": "def get_device_name():\n    return 'cpu'\n",
    "stable_baselines3/common/utils.py": """
import torch
def get_device(device="auto"):
    return torch.device("cpu" if device in ("auto", "cuda") else device)
""",
    "fastai/torch_core.py": """
import torch, types
defaults = types.SimpleNamespace(use_cuda=None)
def default_device(use=-1):
    if use != -1: defaults.use_cuda = use
    return torch.device("cpu")
""",
    "ultralytics/utils/torch_utils.py": """
import torch
def select_device(device="", newline=False, verbose=True):
    return device if device == "tpu" else torch.device("cpu")
""",
    "accelerate/state.py": "PartialState = None\n",  # a version that the hook does not know
}


def installed(*names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if os.environ.get("NETCL_TEST_LIBRARIES") == "1":  # in build/: make test-hooked-libraries
        return lambda test: test
    return unittest.skipIf(missing, f"pip install {' '.join(missing)}")


class TestAfterImport(TestCase):
    def test_a_question_is_no_import(self):
        """importlib.util.find_spec asks for a module without its import; the function still runs, once."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder, *sys.path]):
            Path(folder, "netcl_asked.py").write_text("value = 3\n")
            importlib.invalidate_caches()
            calls = []
            for number in (1, 2):
                after_import("netcl_asked", lambda number=number: calls.append(number))
            for _ in range(2):
                self.assertIsNotNone(importlib.util.find_spec("netcl_asked"))
            self.assertEqual(calls, [])
            self.assertEqual(importlib.import_module("netcl_asked").value, 3)
            self.assertEqual(calls, [1, 2])
            importlib.reload(sys.modules.pop("netcl_asked") and importlib.import_module("netcl_asked"))
            self.assertEqual(calls, [1, 2])
            after_import("netcl_asked", lambda: calls.append(3))
            self.assertEqual(calls, [1, 2, 3])
            del sys.modules["netcl_asked"]


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestHooks(TestCase):
    def test_page_lists_all(self):
        page = (ROOT / "docs" / "libraries.md").read_text()
        listed = re.search(r"^## Hooks\n(.*?)(?=^## )", page, re.M | re.S)[1]
        for name in {name.partition(".")[0] for name in HOOKS}:
            self.assertRegex(listed, rf"(?m)^\| .*`{name}`.*\|", f"docs/libraries.md does not list the hook of {name}")

    def test_stand_ins(self):
        code = """
import sys, warnings, torch
from sentence_transformers.util import get_device_name
from stable_baselines3.common.utils import get_device
from fastai.torch_core import default_device
from ultralytics.utils.torch_utils import select_device
print(get_device_name(), get_device(), get_device("cpu"), get_device(torch.device("cpu")))
print(default_device(), default_device(False), default_device(), default_device(True))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    select_device("cpu"), select_device(device="cpu"), select_device("tpu")
    print(len(said), select_device(), "ultralytics" in str(said[0].message) if said else None)
    import accelerate.state
    print(*("know this accelerate" in str(w.message) for w in said))
"""
        with tempfile.TemporaryDirectory() as folder:
            for file, text in STAND_INS.items():
                path = Path(folder, file)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                for package in [*path.relative_to(folder).parents][:-1]:  # before an installed one, if there is one
                    Path(folder, package, "__init__.py").touch()
            wanted = {
                "1": "netcl netcl:0 cpu cpu\nnetcl:0 cpu cpu netcl:0\n0 cpu True\nFalse True\n",
                "0": "cpu cpu cpu cpu\ncpu cpu cpu cpu\n0 cpu None\n\n",
            }
            for hooks, said in wanted.items():
                env = {**os.environ, "NETCL_LIBRARY_HOOKS": hooks}
                env["PYTHONPATH"] = os.pathsep.join([folder, str(ROOT), os.environ.get("PYTHONPATH", "")])
                command = [sys.executable, "-c", code]
                done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
                self.assertEqual((done.returncode, done.stdout), (0, said), done.stderr)

    @installed("accelerate")
    def test_accelerate(self):
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState

        self.addCleanup(AcceleratorState._reset_state, True)
        for options, device in (({}, "netcl:0"), ({"cpu": True}, "cpu")):
            AcceleratorState._reset_state(True)
            self.assertEqual(Accelerator(**options).device, torch.device(device))
        AcceleratorState._reset_state(True)
        with mock.patch("torch.accelerator.current_accelerator", return_value=torch.device("cpu")):
            self.assertEqual(Accelerator().device, torch.device("cpu"))

    @installed("transformers", "accelerate")
    def test_transformers(self):
        from accelerate.state import AcceleratorState
        from transformers import TrainingArguments

        self.addCleanup(AcceleratorState._reset_state, True)
        for options, device in (({}, "netcl"), ({"use_cpu": True}, "cpu")):
            AcceleratorState._reset_state(True)
            with tempfile.TemporaryDirectory() as folder:
                arguments = TrainingArguments(folder, bf16=True, **options)
                self.assertEqual((arguments.bf16, arguments.device.type), (True, device))

    @installed("sentence_transformers")
    def test_sentence_transformers(self):
        util = importlib.import_module("sentence_transformers.util")
        self.assertEqual(util.get_device_name(), "netcl")

    @installed("stable_baselines3")
    def test_stable_baselines3(self):
        from stable_baselines3.common.utils import get_device

        self.assertEqual([get_device().type, get_device("cpu").type], ["netcl", "cpu"])

    @installed("fastai", "fastdownload")
    def test_fastai(self):
        core, fp16 = (importlib.import_module(f"fastai.{name}") for name in ("torch_core", "callback.fp16"))
        self.assertEqual(core.default_device().type, "netcl")
        for device in ("netcl:0", "cpu"):
            for mode, dtype in ((fp16.AMPMode.BF16, torch.bfloat16), (fp16.AMPMode.FP16, torch.float16)):
                callback = fp16.MixedPrecision(mode)
                callback.learn = types.SimpleNamespace(dls=types.SimpleNamespace(device=torch.device(device)))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    callback.before_fit()
                if device == "cpu":  # as fastai has it
                    self.assertEqual(callback.autocast.device, "cuda")
                    continue
                self.assertEqual((callback.autocast.device, callback.autocast.fast_dtype), ("netcl", dtype))
                self.assertEqual(callback.learn.scaler.is_enabled(), dtype == torch.float16)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestLightning(TestCase):
    QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}

    def plugin(self, trainer):
        plugin = trainer.precision_plugin
        scaler = getattr(plugin, "scaler", None)
        return plugin.precision, getattr(plugin, "device", None), scaler is not None and scaler.is_enabled()

    def check(self, package, ours):
        self.assertIs(package.accelerators.AcceleratorRegistry["netcl"]["accelerator"], ours.NetclAccelerator)
        trainer_class, strategy = package.Trainer, ours.netcl_strategy
        fp16 = torch.float16 in torch.netcl.amp.autocast_dtypes()
        half = ("16-mixed", "netcl", True) if fp16 else ("bf16-mixed", "netcl", False)
        bf16 = ("bf16-mixed", "netcl", False)
        true = {p: (p, None, False) for p in ("bf16-true", "16-true", "32-true")}
        precisions = {None: true["32-true"], "16-mixed": half, "bf16-mixed": bf16, **true}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for precision, wanted in precisions.items():
                for options in ({}, {"accelerator": "netcl"}, {"accelerator": ours.NetclAccelerator()}):
                    trainer = trainer_class(precision=precision, **options, **self.QUIET)
                    self.assertEqual(trainer.strategy.root_device, torch.device("netcl", 0))
                    self.assertEqual(self.plugin(trainer), wanted, (precision, options))
                trainer = trainer_class(precision=precision, strategy=strategy(), **self.QUIET)
                self.assertEqual(self.plugin(trainer), wanted if precision else half, precision)
            trainer = trainer_class(accelerator="cpu", precision="bf16-mixed", **self.QUIET)
            self.assertEqual(trainer.strategy.root_device, torch.device("cpu"))
            self.assertEqual(self.plugin(trainer)[:2], ("bf16-mixed", "cpu"))
            self.assertEqual(self.plugin(trainer_class(strategy=strategy(dtype=torch.bfloat16), **self.QUIET)), bf16)
            with self.assertRaisesRegex(ValueError, "give one of them"):
                trainer_class(strategy=strategy(dtype=torch.bfloat16), precision="16-mixed", **self.QUIET)

    @installed("lightning")
    def test_trainer(self):
        ours = importlib.import_module("torch_netcl.lightning")  # imports Lightning, and so runs the hook
        self.check(importlib.import_module("lightning.pytorch"), ours)

    @installed("pytorch_lightning")
    def test_trainer_of_pytorch_lightning(self):
        ours = importlib.import_module("torch_netcl.pytorch_lightning")
        self.check(importlib.import_module("pytorch_lightning"), ours)

    @installed("lightning")
    def test_fabric(self):
        from lightning.fabric import Fabric

        for options, device in (({}, "netcl"), ({"accelerator": "netcl"}, "netcl"), ({"accelerator": "cpu"}, "cpu")):
            fabric = Fabric(precision="bf16-mixed", **options)
            self.assertEqual((fabric.device.type, fabric._precision.device), (device, device))
        model, optimizer = Fabric().setup(*self.parts())
        loss = model(torch.ones(2, 3, device="netcl")).sum()
        loss.backward()
        optimizer.step()
        self.assertEqual(model.weight.device, torch.device("netcl", 0))

    def parts(self):
        model = torch.nn.Linear(3, 2)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)


class TestGradScaler(TestCase):
    def test_without_a_device(self):
        """torch.amp.GradScaler() means CUDA and disables itself; a warning names the argument that is missing."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            scaler = torch.amp.GradScaler()
        self.assertFalse(scaler.is_enabled())
        self.assertTrue(any('torch.amp.GradScaler("netcl")' in str(w.message) for w in said))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertTrue(torch.amp.GradScaler("netcl").is_enabled())
            torch.amp.GradScaler("cpu")
            torch.amp.GradScaler(enabled=False)
            torch.netcl.amp.GradScaler()


if __name__ == "__main__":
    run_tests()
