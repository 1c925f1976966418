"""A long run with injected Inf and NaN: decisions, skipped steps and blame are compared with the CPU in each step.

NETCL_TEST_FULL=1 makes it 1,000 steps; otherwise it has 60.
"""

import math
import os
import random
import unittest

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

DEV = "netcl"
STEPS = 1000 if os.environ.get("NETCL_TEST_FULL") == "1" else 60
BAD = (math.inf, -math.inf, math.nan)


def bits(tensor):
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8)


class Run:
    """A model on netcl, and a CPU scaler that gets copies of its scaled gradients."""

    def __init__(self, dtype, seed):
        torch.manual_seed(seed)
        self.rng = random.Random(seed)
        self.dtype = dtype
        self.model = nn.Sequential(
            nn.Linear(8, 24), nn.BatchNorm1d(24), nn.GELU(), nn.Linear(24, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        ).to(DEV)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.scaler = torch.netcl.amp.GradScaler(init_scale=2.0**10, growth_interval=2)
        self.transaction = torch.netcl.amp.transactional(self.model, scaler=self.scaler)
        self.copies = [nn.Parameter(torch.zeros(p.shape)) for p in self.model.parameters()]
        self.cpu_optimizer = torch.optim.SGD(self.copies, lr=1e-30)
        self.cpu_scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
        self.cpu_steps = 0
        self.cpu_optimizer.register_step_post_hook(lambda *_: setattr(self, "cpu_steps", self.cpu_steps + 1))

    def kept(self):
        """Everything that a skipped step must not change."""
        state = [t for s in self.optimizer.state.values() for t in s.values()]
        return [bits(t) for t in (*self.model.state_dict().values(), *state)]

    def spoil(self, tensor):
        """A copy with one to five elements that are Inf or NaN."""
        spoilt = tensor.detach().clone()
        for _ in range(self.rng.randint(1, 5)):
            spoilt.view(-1)[self.rng.randrange(spoilt.numel())] = self.rng.choice(BAD)
        return tensor + (spoilt - tensor.detach())

    def inject(self, kind, x):
        """The input, and a function that removes the injection."""
        if kind == "input":
            return self.spoil(x), lambda: None
        if kind == "activation":
            module = self.rng.choice(list(self.model))
            return x, module.register_forward_hook(lambda m, i, out: self.spoil(out)).remove
        param = self.rng.choice(list(self.model.parameters()))
        if kind == "gradient":
            return x, param.register_hook(self.spoil).remove
        if kind == "weight":
            was = param.detach().clone()
            with torch.no_grad():
                param.copy_(self.spoil(param))
            return x, lambda: param.data.copy_(was)
        return x, lambda: None

    def step(self, kind):
        """One step: returns whether it left everything unchanged, and which gradients the scaler blames."""
        x = torch.randn(16, 8, device=DEV)
        x, remove = self.inject(kind, x)
        before = self.kept()
        with self.transaction:
            self.optimizer.zero_grad()
            with torch.autocast(DEV, dtype=self.dtype):
                out = self.model(x)
                loss = nn.functional.mse_loss(out.float(), torch.zeros_like(out, dtype=torch.float32))
            self.scaler.scale(loss).backward()
            for copy, p in zip(self.copies, self.model.parameters(), strict=True):
                copy.grad = p.grad.cpu()
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        after = self.kept()
        unchanged = len(after) >= len(before) and all(map(torch.equal, before, after))
        remove()
        return unchanged, {b.name: (b.count, b.first) for b in self.scaler.blame(self.model)}

    def step_on_cpu(self):
        """The same decision by the CPU's scaler for the same gradients."""
        self.cpu_scaler.scale(torch.ones(()))
        want = {}
        for (name, _), copy in zip(self.model.named_parameters(), self.copies, strict=True):
            bad = (~copy.grad.isfinite()).nonzero()
            if len(bad):
                want[name] = (len(bad), tuple(bad[0].tolist()))
        done = self.cpu_steps
        self.cpu_scaler.step(self.cpu_optimizer)
        self.cpu_scaler.update()
        return self.cpu_steps == done, want


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestInjected(TestCase):
    @parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_run(self, dtype):
        if dtype == torch.float16:
            allow_fp16(self)
        run = Run(dtype, seed=3)
        skipped = dict.fromkeys(("", "input", "activation", "gradient", "weight"), 0)
        for step in range(STEPS):
            kind = run.rng.choice(list(skipped)) if run.rng.random() < 0.3 else ""
            unchanged, blame = run.step(kind)
            skip, want = run.step_on_cpu()
            what = f"step {step}, injected: {kind or 'nothing'}"
            self.assertEqual(blame, want, msg=what)
            self.assertEqual(unchanged, skip, msg=what)
            self.assertEqual(run.scaler.get_scale(), run.cpu_scaler.get_scale(), msg=what)
            self.assertTrue(skip or not kind, msg=what)
            skipped[kind] += skip
        self.assertTrue(all(t.isfinite().all() for t in run.model.state_dict().values()))
        self.assertTrue(all(skipped[kind] >= STEPS // 60 for kind in skipped if kind), msg=str(skipped))
        self.assertLess(skipped[""], STEPS // 5)


instantiate_parametrized_tests(TestInjected)

if __name__ == "__main__":
    run_tests()
