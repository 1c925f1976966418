"""torch_netcl.amp.training, and `python -m torch_netcl.train`, which uses it."""

import contextlib
import csv
import importlib.util
import io
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

import pytest
import torch
from common import allow_fp16
from torch import nn
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401
from torch_netcl import train as program
from torch_netcl.amp import training

DEV = "netcl"
NEEDED = ("sklearn", "tqdm", "matplotlib", "yaml")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


def params_with_grads(dev, *grads):
    result = [nn.Parameter(torch.zeros_like(g, device=dev)) for g in grads]
    for p, g in zip(result, grads, strict=True):
        p.grad = g.to(dev)
    return result


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestGradientHelpers(TestCase):
    def grads(self):
        gen = torch.Generator().manual_seed(0)
        return [torch.randn(s, generator=gen) for s in ((3,), (40, 7), (), (1000,))]

    @parametrize("max_norm", [0.5, 1e3, math.inf])
    def test_clip(self, max_norm):
        ours, reference = params_with_grads(DEV, *self.grads()), params_with_grads("cpu", *self.grads())
        ours.append(nn.Parameter(torch.ones(2, device=DEV)))  # without a gradient
        pre, post = training.clip_global_l2_norm(iter(ours), max_norm)
        want = nn.utils.clip_grad_norm_(reference, max_norm)
        self.assertEqual(pre.cpu(), want)
        for p, q in zip(ours, reference, strict=False):
            self.assertEqual(p.grad.cpu(), q.grad)
        self.assertEqual(post.cpu(), torch.cat([q.grad.flatten() for q in reference]).norm())
        self.assertLessEqual(post.item(), max_norm)

    def test_clip_waits_for_nothing(self):
        params = params_with_grads(DEV, *self.grads())
        training.clip_global_l2_norm(params, 1.0)
        waits = torch.netcl.host_sync_count()
        training.clip_global_l2_norm(params, 0.5)
        self.assertEqual(torch.netcl.host_sync_count(), waits)

    def test_no_gradients(self):
        params = [nn.Parameter(torch.ones(2, device=DEV))]
        self.assertIs(training.has_non_finite_grad(params), False)
        self.assertEqual([t.item() for t in training.clip_global_l2_norm(params, 1.0)], [0, 0])

    @parametrize("dev", ["cpu", DEV])
    def test_non_finite(self, dev):
        for bad in (math.inf, -math.inf, math.nan):
            for at in (0, 3):
                params = params_with_grads(dev, *self.grads())
                self.assertIs(training.has_non_finite_grad(params), False)
                params[at].grad.view(-1)[-1] = bad
                self.assertIs(training.has_non_finite_grad(params), True)

    def test_large_is_finite(self):
        # The sum of their squares is not finite.
        params = params_with_grads(DEV, torch.full((5,), 3e38), torch.ones(2))
        self.assertIs(training.has_non_finite_grad(params), False)
        self.assertEqual(params[0].grad.cpu(), torch.full((5,), 3e38))

    def test_non_finite_takes_one_reduction_and_one_read(self):
        params = params_with_grads(DEV, *[torch.ones(n + 1) for n in range(100)])
        training.has_non_finite_grad(params)
        counts = torch.netcl.launch_count(), torch.netcl.host_sync_count()
        training.has_non_finite_grad(params)
        one = torch.netcl.launch_count() - counts[0], torch.netcl.host_sync_count() - counts[1]
        # The launches are the flag, the factor, the table of tensors, and the reduction itself.
        self.assertLessEqual(one[0], 4)
        self.assertEqual(one[1], 1)


class Recording(torch.amp.GradScaler):
    """Records the order of its calls."""

    def __init__(self, calls, **kwargs):
        super().__init__(DEV, **kwargs)
        self.calls = calls

    def scale(self, outputs):
        if outputs.requires_grad:
            self.calls.append("scale")
        return super().scale(outputs)

    def unscale_(self, optimizer):
        self.calls.append("unscale_")
        super().unscale_(optimizer)

    def step(self, optimizer, *args, **kwargs):
        self.calls.append("step")
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale=None):
        self.calls.append("update")
        super().update(new_scale)


def make_state(dev=DEV, make_scaler=None, **kwargs):
    kwargs.setdefault("amp_dtype", torch.bfloat16)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 4)).to(dev)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=dev == DEV)
    scaler = make_scaler() if make_scaler else torch.amp.GradScaler(dev, init_scale=1024.0, growth_interval=3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    return training.AmpTrainState(model, optimizer, scaler, dev, scheduler=scheduler, **kwargs)


def batch(seed=0, dev=DEV):
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(32, 8, generator=gen).to(dev), torch.randn(32, 4, generator=gen).to(dev)


def poison(state):
    """Makes the next gradient of the first parameter NaN."""
    return next(state.model.parameters()).register_hook(lambda g: torch.full_like(g, math.nan))


def snapshot(state):
    tensors = [*state.model.parameters()]
    tensors += [t for s in state.optimizer.state.values() for t in s.values()]
    return [t.detach().cpu().clone() for t in tensors]


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestState(TestCase):
    def assertBitEqual(self, a, b):
        self.assertEqual(len(a), len(b))
        self.assertTrue(all(torch.equal(x, y) for x, y in zip(a, b, strict=True)))

    def test_order(self):
        calls = []
        state = make_state(make_scaler=lambda: Recording(calls, init_scale=16.0), max_norm=1e6)
        state.loss_fn = lambda out, y: calls.append("forward") or nn.functional.mse_loss(out, y)
        state.optimizer.register_step_post_hook(lambda *_: calls.append("optimizer.step"))
        clip = nn.utils.clip_grads_with_norm_
        norm = nn.utils.get_total_norm
        zero_grad = state.optimizer.zero_grad
        patches = [
            mock.patch.object(nn.utils, "clip_grads_with_norm_", lambda *a: calls.append("clip") or clip(*a)),
            mock.patch.object(nn.utils, "get_total_norm", lambda *a: calls.append("norm") or norm(*a)),
            mock.patch.object(
                training,
                "has_non_finite_grad",
                lambda p, check=training.has_non_finite_grad: calls.append("check") or check(p),
            ),
            mock.patch.object(
                state.optimizer,
                "zero_grad",
                lambda set_to_none: calls.append(f"zero_grad {set_to_none}") or zero_grad(set_to_none),
            ),
        ]
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            x, y = batch()
            self.assertIsInstance(state.step(x, y), training.StepLog)
            taken = ["forward", "scale", "unscale_", "norm", "check"]
            end = ["update", "zero_grad True"]
            self.assertEqual(calls, [*taken, "clip", "step", "optimizer.step", *end])
            calls.clear()
            hook = poison(state)
            self.assertEqual(state.step(x, y).skip_reason, "non-finite gradient")
            hook.remove()
            self.assertEqual(calls, [*taken, *end])
            calls.clear()
            self.assertEqual(state.step(x, y / 0).skip_reason, "non-finite loss")
            # Without a backward pass there is no inf check for update(), so the state makes the scale back off.
            self.assertEqual(calls, ["forward", end[1]])
            self.assertEqual(state.scaler.get_scale(), 4.0)
        self.assertTrue(all(p.grad is None for p in state.model.parameters()))

    @parametrize("amp_dtype", [torch.bfloat16, torch.float16, None])
    def test_matches_training_by_hand(self, amp_dtype):
        if amp_dtype == torch.float16:
            allow_fp16(self)
        make_scaler = None if amp_dtype else lambda: torch.amp.GradScaler(DEV, enabled=False)
        state, other = (make_state(amp_dtype=amp_dtype, max_norm=0.5, make_scaler=make_scaler) for _ in range(2))
        model, optimizer, scaler = other.model, other.optimizer, other.scaler
        logs = []
        for n in range(6):
            x, y = batch(n)
            torch.netcl.manual_seed(n)
            logs.append(state.step(x, y))
            torch.netcl.manual_seed(n)
            optimizer.zero_grad()
            scale, lr = scaler.get_scale(), optimizer.param_groups[0]["lr"]
            with torch.autocast(DEV, dtype=amp_dtype, enabled=amp_dtype is not None):
                loss = nn.functional.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()
            scaler.step(optimizer)
            scaler.update()
            other.scheduler.step()
            log = logs[-1]
            self.assertIsInstance(log, training.StepLog)
            got = (log.step, log.lr, log.loss, log.grad_l2_pre_clip)
            self.assertEqual(got, (n, lr, loss.item(), norm), atol=0, rtol=0)
            self.assertEqual(log.grad_l2_post_clip, min(norm, 0.5))
            self.assertEqual(log.scaler_scale, 1.0 if amp_dtype is None else 1024.0 if n < 3 else 2048.0)
            self.assertEqual(log.scaler_scale, scale)  # get_scale() is 1024 before the first step as well
        self.assertBitEqual(snapshot(state), snapshot(other))

    @parametrize("reason", ["non-finite loss", "non-finite gradient"])
    def test_skip_changes_nothing(self, reason):
        state = make_state(amp_dtype=torch.bfloat16)
        for first in (True, False):  # the scaler makes its scale in the first step
            before, lr = snapshot(state), state.scheduler.get_last_lr()
            x, y = batch(1)
            if reason == "non-finite loss":
                log = state.step(x * math.nan, y)
                self.assertTrue(math.isnan(log.loss) and math.isnan(log.grad_l2_pre_clip))
            else:
                hook = poison(state)
                log = state.step(x, y)
                hook.remove()
                self.assertTrue(math.isfinite(log.loss) and math.isnan(log.grad_l2_pre_clip))
            self.assertIsInstance(log, training.SkipLog)
            self.assertEqual(log.skip_reason, reason)
            self.assertEqual(log.row()[5:7], (1, reason))
            self.assertEqual(log.scaler_scale, 1024.0 if first else 512.0)
            self.assertBitEqual(snapshot(state), before)
            self.assertEqual(state.scheduler.get_last_lr(), lr)
            state.step(x, y)
        # The scale was halved in two of four steps, and no three clean steps came in a row.
        self.assertEqual(state.scaler.get_scale(), 256.0)
        self.assertEqual(state.steps, 4)

    def test_without_a_scaler(self):
        state = make_state(make_scaler=lambda: None, amp_dtype=torch.bfloat16)
        x, y = batch()
        self.assertEqual(state.step(x, y).scaler_scale, 1.0)
        before = snapshot(state)
        self.assertIsInstance(state.step(x, y / 0), training.SkipLog)
        hook = poison(state)
        self.assertIsInstance(state.step(x, y), training.SkipLog)
        hook.remove()
        self.assertBitEqual(snapshot(state), before)

    def test_mixed_devices(self):
        model = nn.Linear(2, 2).to(DEV)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with self.assertRaisesRegex(ValueError, r"autocast is on cpu, but the optimizer has parameters on netcl:0.*"):
            training.AmpTrainState(model, optimizer, device="cpu")
        on_cpu = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
        with self.assertRaisesRegex(ValueError, "autocast is on netcl, but .* on cpu: move the model with .to"):
            training.AmpTrainState(model, on_cpu, device=DEV)
        with self.assertRaisesRegex(ValueError, "the scaler is for cpu"):
            training.AmpTrainState(model, optimizer, torch.amp.GradScaler("cpu"), DEV, amp_dtype=torch.bfloat16)
        state = training.AmpTrainState(model, optimizer)
        with self.assertRaisesRegex(ValueError, "inputs are on cpu, the model is on netcl"):
            state.step(torch.ones(1, 2), torch.ones(1, 2, device=DEV))

    def test_float16_without_a_scaler_warns(self):
        model = nn.Linear(2, 2).to(DEV)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for scaler in (None, torch.amp.GradScaler(DEV, enabled=False)):
            with self.assertWarnsRegex(UserWarning, "float16 autocast without a GradScaler"):
                training.AmpTrainState(model, optimizer, scaler, amp_dtype=torch.float16)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            training.AmpTrainState(model, optimizer, amp_dtype=torch.bfloat16)
            training.AmpTrainState(model, optimizer, torch.amp.GradScaler(DEV), amp_dtype=torch.float16)

    @parametrize("dev", ["cpu", DEV])
    def test_state_dict_continues_bit_for_bit(self, dev):
        state = make_state(dev, amp_dtype=torch.bfloat16)
        for n in range(4):
            state.step(*batch(n, dev))
        file = io.BytesIO()
        torch.save(state.state_dict(), file)
        rest = [state.step(*batch(n, dev)) for n in range(4, 8)]
        file.seek(0)
        torch.manual_seed(99)
        other = make_state(dev, amp_dtype=torch.bfloat16)
        other.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
        self.assertEqual([other.step(*batch(n, dev)) for n in range(4, 8)], rest)
        self.assertBitEqual(snapshot(other), snapshot(state))
        self.assertEqual(other.scaler.state_dict(), state.scaler.state_dict())


class TestMonitorAndCsv(TestCase):
    def test_loggers(self):
        """The same numbers reach each kind of logger; those that are not finite are left out."""
        step = training.StepLog(3, 0.1, 2.0, 1.0, 0.5, 8.0)
        blame = training.Blame("w", 0, 1, 4, (2,))
        skip = training.SkipLog(4, 0.1, math.nan, math.nan, math.inf, 8.0, "non-finite loss", (blame,))
        wanted = {"a/loss": 0.5, "a/lr": 0.1, "a/grad_l2_pre_clip": 2.0, "a/grad_l2_post_clip": 1.0,
                  "a/scaler_scale": 8.0, "a/skipped": 0.0}
        board, dicts = mock.Mock(spec=["add_scalar", "add_text"]), mock.Mock(spec=["log"])
        metrics = mock.Mock(spec=["log", "log_metrics"])
        for log in (step, skip):
            for logger in (board, dicts, metrics):
                training.log_to(logger, log, "a/")
        skipped = {"a/lr": 0.1, "a/scaler_scale": 8.0, "a/skipped": 1.0}
        self.assertTrue(dicts.log.call_args_list == [mock.call(wanted, step=3), mock.call(skipped, step=4)])
        self.assertTrue(metrics.log_metrics.call_args_list == dicts.log.call_args_list)
        metrics.log.assert_not_called()
        rows = {(k, v, 3) for k, v in wanted.items()} | {(k, v, 4) for k, v in skipped.items()}
        self.assertTrue({call.args for call in board.add_scalar.call_args_list} == rows)
        self.assertEqual(board.add_text.call_args.args, ("a/skip", f"non-finite loss; {blame}", 4))
        with self.assertRaisesRegex(TypeError, "add_scalar, log_metrics or log"):
            training.log_to(object(), step)

    def test_rate_and_patience(self):
        monitor = training.SkipMonitor(window=20, threshold=0.05, patience=3)
        seen = []
        for skipped in (1, 0, 1, 0, 0, 1, *[0] * 20):
            monitor.add(skipped)
            seen.append((round(monitor.rate * 20), monitor.alert, monitor.exceeded))
        # One of twenty is not above 5 %, but two are, from the third step until the first has left the window; the
        # third skip is in the sixth step.
        self.assertEqual(seen[:6], [(1, 0, 0), (1, 0, 0), (2, 1, 0), (2, 1, 0), (2, 1, 1), (3, 1, 1)])
        self.assertEqual(seen[20:], [(2, 1, 1), (2, 1, 1), (1, 0, 0), (1, 0, 0), (1, 0, 0), (0, 0, 0)])

    def test_first_skips_are_no_alarm(self):
        monitor = training.SkipMonitor()
        for step in range(1000):
            monitor.add(step < 50)
            self.assertFalse(monitor.alert)
        monitor = training.SkipMonitor()
        for _ in range(150):
            self.assertFalse(monitor.exceeded)
            monitor.add(True)
        self.assertTrue(monitor.exceeded)

    def test_csv_goes_on_where_a_run_was_resumed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "new" / "run.csv"
            logs = [training.StepLog(n, 0.1, 2.0, 1.0, 0.25, 8.0) for n in range(3)]
            logs[1] = training.SkipLog(1, 0.1, math.nan, math.nan, math.inf, 8.0, "non-finite loss")
            with training.CsvLog(path) as log:
                for entry in logs:
                    log.add(entry)
            text = path.read_text()
            self.assertEqual(
                text,
                "step,lr,grad_l2_pre_clip,grad_l2_post_clip,loss,skipped,skip_reason,scaler_scale,blame\n"
                "0,0.1,2,1,0.25,0,,8,\n"
                "1,0.1,nan,nan,inf,1,non-finite loss,8,\n"
                "2,0.1,2,1,0.25,0,,8,\n",
            )
            path.write_text(text + "3,0.1,2")  # a power cut
            with training.CsvLog(path, first_step=2) as log:
                log.add(logs[2])
            self.assertEqual(path.read_text(), text)
            self.assertEqual([row["skipped"] for row in training.read_csv(path)], ["0", "1", "0"])
            self.assertEqual(os.listdir(path.parent), ["run.csv"])

    def test_files_are_replaced_as_a_whole(self):
        """The log and the checkpoint, through a new file beside them that nobody can have planted."""
        state, monitor = mock.Mock(), training.SkipMonitor()
        state.state_dict.return_value = {}

        def csv(path):
            training.CsvLog(path).close()

        def checkpoint(path):
            program._save(str(path), program.TrainConfig(), state, monitor)

        for write, broken in ((csv, "csv.writer"), (checkpoint, "torch.save")):
            for mask in (0o022, 0o077, 0o002):
                with tempfile.TemporaryDirectory() as folder, self.subTest(write.__name__, mask=mask):
                    path, victim, plain = (Path(folder) / name for name in ("run", "victim", "plain"))
                    victim.write_text("of value")
                    link = path.with_name(f"run.{os.getpid()}.tmp")
                    link.symlink_to(victim)
                    path.write_text("")
                    before = os.umask(mask)
                    try:
                        plain.write_text("")
                        write(path)
                    finally:
                        os.umask(before)
                    self.assertEqual(victim.read_text(), "of value")
                    self.assertTrue(link.is_symlink() and path.stat().st_size > 0)
                    self.assertEqual(oct(path.stat().st_mode), oct(plain.stat().st_mode))
                    written = path.read_bytes()
                    with mock.patch(broken, side_effect=OSError("disk full")), self.assertRaises(OSError):
                        write(path)
                    self.assertEqual(path.read_bytes(), written)
                    self.assertEqual(sorted(os.listdir(folder)), sorted([path.name, link.name, "plain", "victim"]))

    def test_config(self):
        with tempfile.TemporaryDirectory() as folder:
            yaml, as_json, other = (Path(folder) / f"c.{end}" for end in ("yaml", "json", "toml"))
            yaml.write_text("steps: 7\nlr: 1e-3\nbatch-size: 8\nspike: [1, 2]\n")
            as_json.write_text(json.dumps({"steps": 7, "lr": 1, "bf16": True}))
            if "yaml" not in MISSING:
                config, saved = program.parse(["--config", str(yaml), "--steps", "9", "--inject-inf", "4", "5"])
                self.assertIsNone(saved)
                self.assertEqual((config.steps, config.lr, config.batch_size), (9, 1e-3, 8))
                self.assertEqual((config.spike, config.inject_inf, config.bf16), ([1, 2], [4, 5], False))
            config, _ = program.parse(["--config", str(as_json), "--no-bf16"])
            self.assertEqual((config.steps, config.lr, config.bf16), (7, 1.0, False))
            self.assertEqual(program.parse([])[0], program.TrainConfig())
            for text, error in (
                ('{"stepz": 1}', "no option is called 'stepz'"),
                ('{"steps": 1.5}', "steps must be int, not 1.5"),
                ('{"amp": "fp8"}', "amp must be one of auto, fp16, bf16, off, not 'fp8'"),
                ("[]", "expected a mapping"),
                ("{", "Expecting property name"),
            ):
                as_json.write_text(text)
                self.assertIn(error, self.parse_error("--config", str(as_json)))
            other.write_text("")
            self.assertIn("ends in .json, .yaml or .yml", self.parse_error("--config", str(other)))
            self.assertIn("No such file", self.parse_error("--resume", str(Path(folder) / "none.pt")))

    def parse_error(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as caught:
            program.parse(arguments)
        self.assertEqual(caught.exception.code, 2)
        return said.getvalue()


@unittest.skipIf(MISSING, f"the demo extra is not installed: {MISSING}")
@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestProgram(TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.csv = self.folder / "run.csv"

    def main(self, *arguments):
        """Exit status and standard output."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            status = program.main([str(a) for a in ("--batch-size", 16, "--csv", self.csv, *arguments)])
        return status, out.getvalue()

    @parametrize("amp", ["fp16", "bf16"])
    def test_spike(self, amp):
        if amp == "fp16":
            allow_fp16(self)
        png = self.folder / "run.png"
        # At this scale, only the spike overflows.
        status, out = self.main("--amp", amp, "--steps", 12, "--spike", 7, "--init-scale", 256, "--png", png)
        self.assertEqual(status, 0)
        rows = training.read_csv(self.csv)
        self.assertEqual([int(row["step"]) for row in rows], list(range(12)))
        # The gradient of the output is about 2 * 1e8 / 160, which is too large for fp16 but not for bf16.
        skipped = [int(row["step"]) for row in rows if row["skipped"] == "1"]
        self.assertEqual(skipped, [7] if amp == "fp16" else [])
        self.assertGreater(float(rows[7]["loss"]), 1e14)
        self.assertEqual("SKIP      7" in out, amp == "fp16")
        self.assertIn("STEP      0", out)
        self.assertIn(f"12 steps, {len(skipped)} skipped", out)
        if amp == "fp16":
            self.assertEqual([float(row["scaler_scale"]) for row in rows], [256.0] * 8 + [128.0] * 4)
        self.assertEqual(png.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_plot(self):
        """Each panel has its label and a legend, in which skipped steps are named once."""
        pyplot = pytest.importorskip("matplotlib.pyplot")
        with open(self.csv, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(training.CSV_COLUMNS)
            writer.writerows((step, 0.1, 3.0, 1.0, 2.0, int(step in (2, 4)), "", 8.0, "") for step in range(6))
        with mock.patch.object(pyplot, "close"):
            program.plot(str(self.csv), str(self.folder / "run.png"))
        axes = pyplot.gcf().axes
        self.addCleanup(pyplot.close)
        self.assertEqual([axis.get_ylabel() for axis in axes], ["loss", "norm", "scale"])
        for axis, first in zip(axes, ("loss", "grad_l2_pre_clip", "scaler_scale"), strict=True):
            texts = [text.get_text() for text in axis.get_legend().get_texts()]
            self.assertEqual((texts[0], texts[-1], len(set(texts))), (first, "skipped", len(texts)))

    def test_injected_inf(self):
        status, out = self.main("--bf16", "--steps", 6, "--inject-inf", 2, 4)
        self.assertEqual(status, 0)
        rows = training.read_csv(self.csv)
        self.assertEqual([row["skip_reason"] for row in rows], ["", "", *["non-finite gradient", ""] * 2])
        self.assertTrue(all(math.isfinite(float(row["loss"])) for row in rows))

    def test_too_many_skips_end_the_run(self):
        window = ("--skip-window", 20, "--skip-patience", 4)
        spoilt = ("--bf16", "--steps", 12, "--inject-inf", 2, 3, *window)
        status, out = self.main(*spoilt, "--stop-on-skips")
        self.assertEqual(status, 3)
        self.assertIn("ALERT     3  10.0% of 20 steps skipped", out)
        self.assertIn("STOP      6  above 5.0% for 4 steps", out)
        self.assertEqual(len(training.read_csv(self.csv)), 7)
        status, out = self.main(*spoilt)
        self.assertEqual(status, 0)
        self.assertEqual(len(training.read_csv(self.csv)), 12)

    def test_resume_is_bit_equal(self):
        amp = "fp16" if torch.float16 in torch.netcl.amp.autocast_dtypes() else "bf16"
        # The scale grows and a step is skipped before and after the checkpoint; dropout draws from the device's
        # generator.
        options = ("--amp", amp, "--steps", 16, "--growth-interval", 3, "--inject-inf", 4, 13, "--init-scale", 256)
        checkpoint = self.folder / "run.pt"
        self.assertEqual(self.main(*options, "--checkpoint", checkpoint)[0], 0)
        whole, rows = torch.load(checkpoint, weights_only=True, map_location="cpu"), self.csv.read_text()
        checkpoint.unlink()

        step = training.AmpTrainState.step

        def interrupted(state, *args):
            if state.steps == 11:
                raise KeyboardInterrupt
            return step(state, *args)

        with mock.patch.object(training.AmpTrainState, "step", interrupted), self.assertRaises(KeyboardInterrupt):
            self.main(*options, "--checkpoint", checkpoint, "--checkpoint-every", 8)
        self.assertEqual(len(training.read_csv(self.csv)), 11)
        torch.manual_seed(123)
        self.assertEqual(self.main("--resume", checkpoint)[0], 0)
        resumed = torch.load(checkpoint, weights_only=True, map_location="cpu")
        self.assertEqual(resumed["state"]["steps"], 16)
        self.assertEqual(resumed["state"], whole["state"], atol=0, rtol=0)
        self.assertEqual(resumed["monitor"], whole["monitor"])
        self.assertEqual(self.csv.read_text(), rows)

    def test_csv_survives_sigkill(self):
        command = [sys.executable, "-m", "torch_netcl.train", "--bf16", "--steps", "1000000", "--log-every", "1"]
        root = Path(torch_netcl.__file__).resolve().parents[1]
        path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
        run = subprocess.Popen(
            [*command, "--csv", str(self.csv)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        )
        try:
            shown = -1
            for line in run.stdout:
                if line.startswith("STEP"):
                    shown = int(line.split()[1])
                if shown >= 25:
                    break
        finally:
            run.send_signal(signal.SIGKILL)
            run.stdout.close()
            run.wait()
        self.assertEqual(run.returncode, -signal.SIGKILL)
        text = self.csv.read_text()
        self.assertTrue(text.endswith("\n"))
        steps = [int(row["step"]) for row in training.read_csv(self.csv)]
        self.assertEqual(len(steps), text.count("\n") - 1)
        self.assertEqual(steps, list(range(len(steps))))
        self.assertGreater(len(steps), shown)  # a step is shown after its row is written

    def test_refusals(self):
        fp16 = torch.float16 in torch.netcl.amp.autocast_dtypes()
        for arguments, error in (
            (("--device", "nonsense"), "unknown device 'nonsense'"),
            (("--csv", "", "--png", "x.png"), "name one with --csv"),
            *([] if fp16 else [(("--amp", "fp16"), "no fp16 arithmetic.*NETCL_FP16=storage")]),
        ):
            with self.assertRaisesRegex(SystemExit, error):
                self.main(*arguments)


instantiate_parametrized_tests(TestGradientHelpers)
instantiate_parametrized_tests(TestState)
instantiate_parametrized_tests(TestProgram)

if __name__ == "__main__":
    run_tests()
