"""AmpTrainState's promises: it applies no update with an Inf or NaN, a skip changes nothing, and it works on after
Ctrl-C. It refuses unusable input, and does not empty files of others."""

import contextlib
import importlib.util
import io
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import torch
from common import allow_fp16
from torch import nn
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl
from torch_netcl import train as program
from torch_netcl.amp import gradients, training
from torch_netcl.amp.transactional import transactional

DEV = "netcl"
MISSING = [name for name in ("sklearn", "tqdm", "matplotlib") if importlib.util.find_spec(name) is None]
OPTIMIZERS = {
    "SGD": lambda p, fused: torch.optim.SGD(p, lr=0.1, fused=fused),
    "momentum": lambda p, fused: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=fused),
    "AdamW": lambda p, fused: torch.optim.AdamW(p, lr=0.01, fused=fused),
    "amsgrad": lambda p, fused: torch.optim.Adam(p, lr=0.01, amsgrad=True, fused=fused),
    "Adagrad": lambda p, fused: torch.optim.Adagrad(p, lr=0.05, fused=fused),
}


def make_state(dev=DEV, optimizer="SGD", fused=True, norm=False, scale=None, **kwargs):
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), *([nn.BatchNorm1d(16)] if norm else []), nn.Tanh(), nn.Linear(16, 4)]
    model = nn.Sequential(*layers).to(dev)
    scaler = torch.amp.GradScaler(dev, init_scale=scale, growth_interval=3) if scale else None
    kwargs.setdefault("amp_dtype", torch.bfloat16)
    return training.AmpTrainState(model, OPTIMIZERS[optimizer](model.parameters(), fused), scaler, dev, **kwargs)


def batch(seed=0, dev=DEV, rows=32):
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 8, generator=gen).to(dev), torch.randn(rows, 4, generator=gen).to(dev)


def tensors(state):
    """Every tensor that a step may write: parameters, buffers, optimizer state."""
    found = [*state.model.parameters(), *state.model.buffers()]
    return found + [t for s in state.optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]


def snapshot(state):
    return [t.detach().cpu().clone() for t in tensors(state)]


def same_bits(a, b):
    def bits(t):
        return t.detach().contiguous().flatten().view(torch.uint8)

    return len(a) == len(b) and all(torch.equal(bits(x), bits(y)) for x, y in zip(a, b, strict=True))


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestNorm(TestCase):
    @parametrize("dev", ["cpu", DEV])
    @parametrize("double", [True, False])
    def test_against_float64(self, dev, double):
        if double and not gradients._has_double(torch.device(dev)):
            self.skipTest("no fp64 on this device")
        gen = torch.Generator().manual_seed(0)
        rng = random.Random(0)
        with mock.patch.object(gradients, "_has_double", lambda device: double):
            for exponent in range(-44, 39, 6):
                shapes = rng.choice([[(3,), (40, 7), ()], [(1000,)], [(0,), (2, 5000)]])
                host = [torch.randn(s, generator=gen) * 10.0**exponent for s in shapes]
                want = torch.cat([g.double().flatten() for g in host]).norm().item()
                got = gradients.global_l2_norm([g.to(dev) for g in host])
                self.assertEqual((got.shape, got.dtype, got.device.type), ((), torch.float32, dev))
                if want > torch.finfo(torch.float32).max:
                    self.assertEqual(got.item(), math.inf)
                else:
                    # 11000 squares added in float32 are off by 11000 * 2^-24 / 2 at most; denormals are flushed.
                    self.assertEqual(got.item(), want, rtol=4e-4, atol=2e-38)
            half = [torch.full((100,), 60000.0, dtype=torch.float16, device=dev)]
            self.assertEqual(gradients.global_l2_norm(half).item(), 600000.0)
            for bad in (math.inf, math.nan):
                grads = [torch.ones(5, device=dev), torch.tensor([1.0, bad], device=dev)]
                self.assertFalse(math.isfinite(gradients.global_l2_norm(grads).item()))
            self.assertEqual(gradients.global_l2_norm([]).item(), 0.0)

    @parametrize("dev", ["cpu", DEV])
    def test_inf_only_measures(self, dev):
        p = nn.Parameter(torch.zeros(4, device=dev))
        p.grad = torch.full_like(p, 1e25)
        before = p.grad.clone(), p.grad._version
        pre, post = training.clip_global_l2_norm([p], math.inf)
        self.assertEqual([pre.item(), post.item()], [2e25, 2e25])
        self.assertTrue(torch.equal(p.grad, before[0]))
        self.assertEqual(p.grad._version, before[1])
        pre, post = training.clip_global_l2_norm([p], 1.0)
        self.assertEqual([pre.item(), post.item()], [2e25, 1.0])
        self.assertEqual(p.grad.cpu(), torch.full((4,), 0.5))

    def test_max_norm_is_checked_everywhere(self):
        p = nn.Parameter(torch.zeros(4, device=DEV))
        p.grad = torch.ones_like(p)
        for bad in (-1, math.nan, -math.inf, "1", True):
            error = ValueError if type(bad) in (int, float) else TypeError
            with self.assertRaisesRegex(error, "max_norm"):
                training.clip_global_l2_norm([p], bad)
            with self.assertRaisesRegex(error, "max_norm"):
                make_state(max_norm=bad)
        self.assertEqual(p.grad.tolist(), [1.0] * 4)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestPromise(TestCase):
    """No update ever holds an Inf or a NaN."""

    @parametrize("optimizer", ["SGD", "AdamW"])
    @parametrize("amp_dtype", [torch.bfloat16, None])
    def test_norm_that_overflows_float32(self, optimizer, amp_dtype):
        state = make_state(optimizer=optimizer, amp_dtype=amp_dtype, loss_fn=lambda a, b: (a - b).mean() * 1e25)
        before = snapshot(state)
        log = state.step(*batch())
        self.assertTrue(all(t.isfinite().all() for t in snapshot(state)))
        self.assertTrue(1e24 < log.grad_l2_pre_clip < 1e26)
        if optimizer == "SGD":
            self.assertIsInstance(log, training.StepLog)
        else:  # Adam's second moment is the square
            self.assertEqual(log.skip_reason, "non-finite update")
            self.assertTrue(same_bits(snapshot(state), before))

    @parametrize("wait", [True, False])
    @parametrize("dev", ["cpu", DEV])
    def test_property(self, dev, wait):
        """Random sizes of loss, scale and norm over float32's whole range, including Inf and NaN."""
        rng = random.Random(wait)
        taken = skipped = 0
        for case in range(12):
            name = rng.choice(list(OPTIMIZERS))
            size = 1.0
            state = make_state(
                dev,
                name,
                fused=not wait or rng.random() < 0.5,
                norm=rng.random() < 0.5,
                scale=rng.choice([None, 2.0**-10, 1.0, 2.0**16, 2.0**100]),
                max_norm=rng.choice([math.inf, 0.0, 1e-30, 1.0, 1e30]),
                accumulate=rng.choice([1, 2]),
                loss_fn=lambda a, b: nn.functional.mse_loss(a, b) * size,
                wait=wait,
            )
            for step in range(5):
                size = rng.choice([1.0, 1e-40, -1.0, 1e10, 1e19, 1e25, 1e37, 3e38, math.inf, math.nan])
                before = snapshot(state)
                log = state.step(*batch(step, dev))
                if not wait:
                    log = state.flush()
                after = snapshot(state)
                what = f"case {case}.{step}: {name}, {size}, {log}"
                if isinstance(log, training.SkipLog):
                    skipped += 1
                    old = after[: len(before)]  # a skipped first step may leave zeros as the optimizer's state
                    self.assertTrue(same_bits(old, before), msg=what)
                else:
                    taken += 1
                    self.assertTrue(math.isfinite(log.loss) and math.isfinite(log.grad_l2_pre_clip), msg=what)
                self.assertTrue(all(t.isfinite().all() for t in after), msg=what)
                self.assertEqual(log.step, step)
        self.assertGreater(taken, 10)
        self.assertGreater(skipped, 10)

    def test_blame_is_in_the_log(self):
        state = make_state(scale=4.0)
        column = torch.tensor([3], device=DEV)
        hook = state.model[2].weight.register_hook(lambda g: g.index_fill(1, column, math.nan))
        log = state.step(*batch())
        hook.remove()
        self.assertEqual([str(b) for b in log.blame], ["2.weight (4 of 64, first at [0, 3])"])
        self.assertEqual(log.row()[-1], "2.weight (4 of 64, first at [0, 3])")
        self.assertIn("non-finite gradient in 2.weight (4 of 64", program._line(log))


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestModes(TestCase):
    """Accumulation, and steps that do not wait."""

    def test_accumulation_is_the_whole_batch(self):
        logs, weights = [], []
        for parts in (1, 4, 5):
            state = make_state(accumulate=parts, scale=8.0, amp_dtype=torch.bfloat16, max_norm=0.5)
            state.amp_dtype = None  # in float32, only the order of sums differs
            logs.append([state.step(*batch(n)) for n in range(3)])
            weights.append([p.detach().cpu() for p in state.model.parameters()])
        for other, w in zip(logs[1:], weights[1:], strict=True):
            self.assertEqual([x.loss for x in other], [x.loss for x in logs[0]])
            self.assertEqual(w, weights[0])
        with self.assertRaisesRegex(ValueError, "at least accumulate=5"):
            state.step(*batch(rows=4))
        for bad in (0, -1, 1.5):
            with self.assertRaisesRegex(ValueError, "accumulate"):
                make_state(accumulate=bad)
        # An Inf in one part skips the whole batch.
        before = snapshot(state)
        x, y = batch()
        y[9] = math.inf
        self.assertEqual(state.step(x, y).skip_reason, "non-finite loss")
        self.assertTrue(same_bits(snapshot(state), before))

    @parametrize("optimizer", ["momentum", "AdamW"])
    @parametrize("amp_dtype", [torch.float16, torch.bfloat16])
    def test_without_waiting_is_the_same(self, optimizer, amp_dtype):
        if amp_dtype == torch.float16:
            allow_fp16(self)
        runs = []
        for wait in (True, False):
            options = {"scale": 2.0**10, "amp_dtype": amp_dtype, "max_norm": 0.5}
            state = make_state(optimizer=optimizer, norm=True, wait=wait, **options)
            state.model[0].weight.register_hook(lambda g, s=state: g * (math.inf if s.steps == 3 else 1.0))
            logs = []
            for n in range(7):
                x, y = batch(n)
                logs.append(state.step(x * math.nan if n == 5 else x, y))
            if not wait:
                self.assertIsNone(logs.pop(0))
                logs.append(state.flush())
                self.assertIsNone(state.flush())
            runs.append((logs, snapshot(state), state.scaler.get_scale()))
        (waited, weights, scale), (late, others, other_scale) = runs
        self.assertEqual([type(x) for x in late], [type(x) for x in waited])
        self.assertEqual([x.step for x in waited if isinstance(x, training.SkipLog)], [3, 5])
        for a, b in zip(late, waited, strict=True):
            self.assertEqual((a.step, a.loss, a.scaler_scale), (b.step, b.loss, b.scaler_scale))
            self.assertEqual((a.grad_l2_pre_clip, a.grad_l2_post_clip), (b.grad_l2_pre_clip, b.grad_l2_post_clip))
            self.assertEqual(getattr(a, "blame", ()), getattr(b, "blame", ()))
            self.assertEqual(getattr(a, "skip_reason", ""), getattr(b, "skip_reason", ""))
        self.assertEqual(others, weights)
        self.assertEqual(other_scale, scale)

    def test_without_waiting_does_not_wait(self):
        state = make_state(optimizer="AdamW", norm=True, scale=2.0**10, max_norm=1.0, wait=False)
        x, y = batch()
        for _ in range(3):
            state.step(x, y)
        state._late.event = None  # ignore what the host reads a step later
        waits = torch.netcl.host_sync_count()
        with mock.patch.object(training.AmpTrainState, "_fetch", lambda self: None):
            for _ in range(5):
                state.step(x, y)
        self.assertEqual(torch.netcl.host_sync_count(), waits)
        with self.assertRaisesRegex(ValueError, "SGD with fused=True"):
            make_state(fused=False, wait=False)

    @parametrize("wait", [True, False])
    def test_a_scale_per_optimizer(self, wait):
        """Two states on one model: each skips, backs off and grows independently, and does not change the other's
        gradients."""
        allow_fp16(self)
        torch.manual_seed(0)
        model = nn.ModuleDict({"trunk": nn.Linear(8, 8), "first": nn.Linear(8, 4), "second": nn.Linear(8, 4)}).to(DEV)
        alone = nn.ModuleDict({k: nn.Linear(8, 4 if k == "second" else 8) for k in ("trunk", "second")}).to(DEV)
        alone.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("first")})

        def make(root, head, scale):
            net = nn.Sequential(root["trunk"], root[head])
            params = [p for n, p in root.named_parameters() if n.startswith(head) or (head == "first" and "trunk" in n)]
            scaler = torch.amp.GradScaler(DEV, init_scale=scale, growth_interval=2)
            opt = torch.optim.SGD(params, lr=0.0 if head == "first" else 0.1, fused=True)
            return training.AmpTrainState(net, opt, scaler, amp_dtype=torch.float16, wait=wait)

        first, second = make(model, "first", 2.0**40), make(model, "second", 2.0**8)
        reference = make(alone, "second", 2.0**8)
        scales = []
        for n in range(6):
            for state in (first, second, reference):
                state.step(*batch(n))
                self.assertTrue(all(p.grad is None for p in (*model.parameters(), *alone.parameters())))
            scales.append((first.scaler.get_scale(), second.scaler.get_scale()))
        self.assertEqual([a for a, _ in scales], [2.0 ** (39 - n) for n in range(6)])
        self.assertEqual([b for _, b in scales], [2.0**k for k in (8, 9, 9, 10, 10, 11)])
        self.assertTrue(same_bits(list(second.model.parameters()), list(reference.model.parameters())))

    def test_late_logs_survive_a_checkpoint(self):
        state = make_state(wait=False)
        state.step(*batch())
        state.state_dict()
        self.assertEqual(state.flush().step, 0)

    def test_compiled_model(self):
        results = []
        for compiled in (False, True):
            torch._dynamo.reset()
            state = make_state(norm=True, scale=16.0)
            if compiled:
                state = training.AmpTrainState(
                    torch.compile(state.model, backend="aot_eager"),
                    state.optimizer,
                    state.scaler,
                    amp_dtype=torch.bfloat16,
                )
            logs = [state.step(*batch(n)) for n in range(2)]
            x, y = batch()
            logs.append(state.step(x * math.inf, y))
            results.append((logs, snapshot(state)))
        self.assertEqual(list(map(str, results[1][0])), list(map(str, results[0][0])))
        self.assertEqual(results[1][1], results[0][1])


class Buffers(nn.Module):
    """Buffers of every dtype, written in place, replaced, resized, shared, expanded."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        for dtype in (torch.uint8, torch.bool, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16):
            self.register_buffer(f"of_{str(dtype)[6:]}", torch.zeros(37, dtype=dtype))
        self.register_buffer("strided", torch.zeros(6, 8)[:, ::2])
        self.register_buffer("transposed", torch.zeros(6, 8).t())
        self.register_buffer("complex", torch.zeros(3, dtype=torch.complex64))
        self.register_buffer("shared", self.norm.running_mean)
        self.register_buffer("expanded", torch.zeros(1).expand(3))
        self.register_buffer("replaced", torch.zeros(5))
        self.register_buffer("nothing", None)
        self.register_buffer("hidden", torch.zeros(5000), persistent=False)

    def forward(self, x):
        for name, buffer in list(self.named_buffers()):
            if name == "replaced":
                self.replaced = buffer + math.nan
            elif name != "expanded" and not name.startswith("norm"):
                buffer.fill_(1)
        return self.norm(x)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestTransactional(TestCase):
    def bits(self, model):
        return [b.detach().cpu().contiguous().clone() for b in model.buffers()]

    @parametrize("dev", ["cpu", DEV])
    @parametrize("how", ["flag", "bool", "rollback", "exception"])
    def test_every_kind_of_buffer(self, dev, how):
        model = Buffers().to(dev)
        before = self.bits(model)
        transaction = transactional(model)
        for _ in range(2):
            with contextlib.suppress(KeyError), transaction:
                model(torch.full((3, 4), math.inf, device=dev))
                self.assertFalse(same_bits(self.bits(model), before))
                if how == "exception":
                    raise KeyError
                if how == "rollback":
                    transaction.rollback()
                else:
                    transaction.settle(torch.ones((), device=dev) if how == "flag" else True)
            self.assertTrue(same_bits(self.bits(model), before))
        for taken in (False, torch.zeros((), device=dev)):
            with transaction:
                model(torch.ones(3, 4, device=dev))
                written = self.bits(model)
                transaction.settle(taken)
            self.assertTrue(same_bits(self.bits(model), written))

    def test_another_shape(self):
        model = nn.Module()
        model.register_buffer("seen", torch.zeros(3, device=DEV))
        for skipped in (True, False):
            with transactional(model) as transaction:
                model.seen = torch.ones(4, device=DEV)
                transaction.settle(torch.full((), float(skipped), device=DEV))
            self.assertEqual(model.seen.tolist(), [0.0] * 3 if skipped else [1.0] * 4)

    @parametrize("scaler", ["torch", "netcl"])
    @parametrize("fused", [True, False])
    def test_loop(self, scaler, fused):
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).to(DEV)
        ema = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda a, b, n: 0.5 * a + 0.5 * b)
        opt = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler(DEV) if scaler == "torch" else torch.netcl.amp.GradScaler()
        transaction = torch.netcl.amp.transactional(model, scaler=scaler).register(ema)
        for step in range(4):
            before = [t.detach().cpu().clone() for t in (*model.state_dict().values(), *ema.state_dict().values())]
            x = torch.full((6, 4), math.nan if step == 2 else float(step), device=DEV)
            waits = torch.netcl.host_sync_count()
            with transaction:
                opt.zero_grad()
                with torch.autocast(DEV, dtype=torch.bfloat16):
                    loss = model(x).square().mean()
                scaler.scale(loss).backward()
                scaler.step(opt)
                ema.update_parameters(model)
            scaler.update()
            if fused and step not in (0,):
                self.assertEqual(torch.netcl.host_sync_count() - waits, 1)  # n_averaged == 0, which swa_utils asks
            after = [t.detach().cpu() for t in (*model.state_dict().values(), *ema.state_dict().values())]
            self.assertEqual(same_bits(after, before), step == 2)
        model.eval()
        self.assertTrue(model(torch.ones(2, 4, device=DEV)).isfinite().all().item())

    def test_misuse(self):
        model = nn.BatchNorm1d(4).to(DEV)
        scaler = torch.amp.GradScaler(DEV)
        with self.assertRaisesRegex(RuntimeError, "scaler.step\\(optimizer\\) inside the block"), transactional(
            model, scaler=scaler
        ):
            pass
        with self.assertRaisesRegex(TypeError, "only modules and tensors"):
            transactional(model).register(3)
        with transactional(model, scaler=torch.amp.GradScaler(DEV, enabled=False)):
            model(torch.ones(3, 4, device=DEV))
        self.assertEqual(model.num_batches_tracked.item(), 1)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestInterrupts(TestCase):
    @parametrize("where", ["forward", "loss", "backward", "optimizer before", "optimizer after", "scheduler", "update"])
    @parametrize("fused", [True, False])
    def test_usable_afterwards(self, where, fused):
        state = make_state(norm=True, scale=4.0, fused=fused, amp_dtype=torch.bfloat16)
        state.scheduler = torch.optim.lr_scheduler.ExponentialLR(state.optimizer, 0.9)
        state.step(*batch())

        def stop(*_):
            raise KeyboardInterrupt

        with contextlib.ExitStack() as stack:
            if where == "forward":
                stack.callback(state.model[2].register_forward_hook(stop).remove)
            elif where == "loss":
                stack.enter_context(mock.patch.object(state, "loss_fn", stop))
            elif where == "backward":
                stack.callback(state.model[0].weight.register_hook(stop).remove)
            elif where == "optimizer before":
                stack.callback(state.optimizer.register_step_pre_hook(stop).remove)
            elif where == "optimizer after":
                stack.callback(state.optimizer.register_step_post_hook(stop).remove)
            else:
                target = state.scheduler if where == "scheduler" else state.scaler
                stack.enter_context(mock.patch.object(target, {"scheduler": "step", "update": "update"}[where], stop))
            before = snapshot(state)
            with self.assertRaises(KeyboardInterrupt):
                state.step(*batch(1))
        if where in ("forward", "loss", "backward", "optimizer before"):
            self.assertTrue(same_bits(snapshot(state), before))
        self.assertTrue(all(p.grad is None for p in state.model.parameters()))
        self.assertFalse(hasattr(state.optimizer, "found_inf"))
        self.assertEqual(state.steps, 1)
        self.assertIsInstance(state.step(*batch(1)), training.StepLog)

    @unittest.skipIf(MISSING, f"the demo extra is not installed: {MISSING}")
    @parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_program_finishes_its_step(self, number):
        with tempfile.TemporaryDirectory() as folder:
            csv, checkpoint = Path(folder) / "run.csv", Path(folder) / "run.pt"
            command = [sys.executable, "-m", "torch_netcl.train", "--bf16", "--steps", "1000000", "--log-every", "1"]
            root = Path(torch_netcl.__file__).resolve().parents[1]
            path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
            run = subprocess.Popen(
                [*command, "--csv", str(csv), "--checkpoint", str(checkpoint)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            )
            try:
                for line in run.stdout:
                    if line.startswith("STEP") and int(line.split()[1]) >= 5:
                        break
                run.send_signal(number)
                rest = run.stdout.read()
            finally:
                if run.poll() is None:
                    run.wait(timeout=120)
                run.stdout.close()
            self.assertEqual(run.returncode, 128 + number)
            self.assertIn(signal.Signals(number).name, rest)
            saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
            self.assertEqual(saved["state"]["steps"], len(training.read_csv(csv)))

    @unittest.skipIf(MISSING, f"the demo extra is not installed: {MISSING}")
    def test_handlers_are_given_back_and_the_second_signal_counts(self):
        before = signal.default_int_handler  # a shell's background jobs inherit a handler that ignores the signal
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, before))
        with program._stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            self.assertEqual(stop, [signal.SIGINT])
            with self.assertRaises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)
        self.assertIs(signal.getsignal(signal.SIGINT), before)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestUnusableInput(TestCase):
    def test_state(self):
        for dtype in (torch.int8, torch.float32, torch.float64, torch.complex64, "float16", True):
            with self.assertRaisesRegex(ValueError, "amp_dtype must be"):
                make_state(amp_dtype=dtype)
        model = nn.Linear(8, 4).to(DEV)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for scaler in (1024.0, "netcl", object()):
            with self.assertRaisesRegex(TypeError, "scaler must be a torch.amp.GradScaler"):
                training.AmpTrainState(model, opt, scaler)
        with self.assertRaisesRegex(ValueError, "without autocast"):
            training.AmpTrainState(model, opt, torch.amp.GradScaler(DEV))
        for give in (1.0, None, torch.ones(2), torch.ones((), dtype=torch.int64)):
            state = training.AmpTrainState(model, opt, loss_fn=lambda a, b, give=give: give)
            with self.assertRaisesRegex(TypeError, "loss_fn must give a 0-dim floating point tensor, not"):
                state.step(*batch())

    def test_options(self):
        bad = {
            "steps": (0, -3),
            "batch-size": (0, -1),
            "init-scale": (0, -1, "nan", "inf"),
            "growth-interval": (0,),
            "lr": (0, -1, "nan", "inf"),
            "max-norm": (-1, 0, "nan"),
            "log-every": (0,),
            "checkpoint-every": (-1,),
            "skip-window": (0,),
            "skip-patience": (0,),
            "skip-threshold": (-0.1, 1.5, "nan"),
            "spike": (-1,),
            "inject-inf": (-2,),
            "seed": (-1,),
        }
        numbers = [
            f.name.replace("_", "-")
            for f in program.dataclasses.fields(program.TrainConfig)
            if type(getattr(program.TrainConfig(), f.name)) in (int, float, list)
        ]
        self.assertEqual(sorted(bad), sorted(numbers))  # a new number needs a line above
        for name, values in bad.items():
            for value in values:
                said = io.StringIO()
                with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as caught:
                    program.parse([f"--{name}={value}"])
                self.assertEqual(caught.exception.code, 2)
                self.assertIn(name.replace("-", "_"), said.getvalue())

    def test_files_that_are_not_ours_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data.csv"
            header = ",".join(training.CSV_COLUMNS) + "\n"
            row = "0,0.1,2,1,0.25,0,,8,\n"
            cases = {
                "foreign": (b"name,price\napple,3\n", (0, 5)),
                "foreign without a newline": (b"name", (0, 5)),
                "binary": (bytes(range(256)) * 3, (0, 5)),
                "no step": ((header + row + "garbage\n").encode(), (5,)),
                "a number that is none": ((header + "1,0.1,x,1,0.25,0,,8,\n").encode(), (5,)),
                "too few columns": ((header + "1,0.1,2\n").encode(), (5,)),
                "too many columns": ((header + row.strip() + ",1,2\n").encode(), (5,)),
            }
            for name, (content, firsts) in cases.items():
                for first in firsts:
                    path.write_bytes(content)
                    with self.assertRaisesRegex(ValueError, "data.csv.*othing was changed", msg=name):
                        training.CsvLog(path, first)
                    self.assertEqual(path.read_bytes(), content)
                    self.assertEqual(os.listdir(folder), ["data.csv"])
            # CsvLog's own files: complete, cut off at any position, and of the version without blame.
            text = header + row + row.replace("0,", "1,", 1)
            for end in range(len(text) + 1):
                path.write_text(text[:end])
                training.CsvLog(path, 1).close()
                self.assertEqual(path.read_text(), header + (row if end >= len(header + row) else ""))
            path.write_text(header.replace(",blame", "") + row.replace(",\n", "\n"))
            training.CsvLog(path, 1).close()
            self.assertEqual(path.read_text(), header + row)
            junk = Path(folder) / "junk.pt"
            for content in (b"", b"junk", b"\x80\x02}q\x00."):
                junk.write_bytes(content)
                said = io.StringIO()
                with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                    program.parse(["--resume", str(junk)])
                self.assertIn("is no checkpoint of this program", said.getvalue())


for case in (TestNorm, TestPromise, TestModes, TestTransactional, TestInterrupts, TestUnusableInput):
    instantiate_parametrized_tests(case)
del case

if __name__ == "__main__":
    run_tests()
