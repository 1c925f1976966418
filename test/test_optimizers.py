"""torch.optim on netcl: foreach (the default), single-tensor and fused, against the CPU in float64."""

import copy
import unittest

import torch
from common import no_fallback
from torch.testing._internal.common_optimizers import optim_db
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    subtest,
)

import torch_netcl  # noqa: F401

DEV = "netcl"
SHAPES = [(3, 5), (17,), (), (4, 3, 2, 2), (4100,), (0,)]

FUSED = {
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adam_l2_amsgrad": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    "adam_maximize": (torch.optim.Adam, {"lr": 0.01, "maximize": True, "betas": (0.0, 0.5), "eps": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
    "adamw_amsgrad": (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.3}),
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "adagrad_decay": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1, "maximize": True}),
}
OTHERS = {
    "adadelta": (torch.optim.Adadelta, {}),
    "adamax": (torch.optim.Adamax, {}),
    "asgd": (torch.optim.ASGD, {}),
    "nadam": (torch.optim.NAdam, {}),
    "radam": (torch.optim.RAdam, {}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    "rprop": (torch.optim.Rprop, {}),
}
ALL = {**FUSED, **OTHERS}


def parameters(dev, dtype):
    gen = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(s, generator=gen).to(dtype).to(dev)) for s in SHAPES]


def run(make, dev, dtype, steps=5, grad_dtype=None, extra=None, **kwargs):
    cls, options = make
    params = parameters(dev, dtype)
    opt = cls(params, **options, **kwargs)
    gen = torch.Generator().manual_seed(1)
    for step in range(steps):
        for p in params:
            # Rounded to the dtype of the device's parameters, so that both sides get the same gradients.
            g = torch.randn(p.shape, generator=gen).to(grad_dtype or dtype)
            p.grad = g.to(dtype).to(dev)
        if extra:
            extra(opt, step)
        opt.step()
    return params, opt


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestOptimizers(TestCase):
    def compare(self, name, dtype, start_dtype=None, steps=5, **kwargs):
        got, opt = run(ALL[name], DEV, dtype, steps=steps, **kwargs)
        want = reference(name, dtype, steps)
        # float32: each of the 5 updates of about 0.1 has a few roundings (2^-24 relative), some of them under a root or
        # a quotient. The narrow dtypes round the parameter in each step, and the states as well.
        if dtype == torch.float32:
            tolerance = {"atol": 3e-6, "rtol": 1e-5}
        else:
            eps = torch.finfo(dtype).eps
            tolerance = {"atol": 4 * eps, "rtol": steps * eps}
        for p, q in zip(got, want, strict=True):
            self.assertEqual(p.detach().cpu().double(), q, msg=name, **tolerance)
        return opt

    @parametrize("name", list(ALL))
    def test_foreach(self, name):
        opt = self.compare(name, torch.float32)
        if "step" in next(iter(opt.state.values()), {}):
            self.assertEqual(float(opt.state[opt.param_groups[0]["params"][0]]["step"]), 5)

    @parametrize("name", list(ALL))
    def test_single_tensor(self, name):
        self.compare(name, torch.float32, foreach=False)

    @parametrize("name", list(FUSED))
    def test_fused(self, name):
        self.compare(name, torch.float32, fused=True)

    @parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    @parametrize("name", ["adamw_amsgrad", "sgd_momentum", "adagrad"])
    def test_fused_dtypes(self, name, dtype):
        if dtype == torch.float64 and not torch.netcl.get_device_properties().has_fp64:
            self.skipTest("no cl_khr_fp64")
        if dtype != torch.float64:
            # Adam's second moment of gradients near 1 is 1e-3 after a step. bfloat16 holds it with an error of 2^-8, so
            # the quotient, and with it an update of lr, has about the same error.
            self.compare(name, dtype, fused=True, steps=2)
        else:
            self.compare(name, dtype, fused=True)

    @parametrize("name", ["adam", "adamw", "sgd_momentum", "adagrad"])
    def test_tensor_learning_rate(self, name):
        cls, options = FUSED[name]
        for where in ("cpu", DEV):
            make = cls, {**options, "lr": torch.tensor(options["lr"], device=where)}
            got, _ = run(make, DEV, torch.float32, fused=True)
            want = reference(name, torch.float32, 5)
            for p, q in zip(got, want, strict=True):
                self.assertEqual(p.detach().cpu().double(), q, atol=3e-6, rtol=1e-5)

    @parametrize("name", list(FUSED))
    def test_found_inf_touches_nothing(self, name):
        cls, options = FUSED[name]
        params, opt = run(FUSED[name], DEV, torch.float32, steps=2, fused=True)

        def everything():
            states = [v for p in params for v in opt.state[p].values() if isinstance(v, torch.Tensor)]
            return [t.detach().clone().cpu() for t in [*params, *(p.grad for p in params), *states]]

        before = everything()
        opt.found_inf = torch.ones((), device=DEV)
        opt.grad_scale = torch.full((), 4.0, device=DEV)
        opt.step()
        if not getattr(opt, "_step_supports_amp_scaling", False):
            return
        for a, b in zip(before, everything(), strict=True):
            self.assertTrue(torch.equal(a, b), msg=name)
        # With found_inf 0, gradients are divided by the scale and stored.
        for p in params:
            p.grad.mul_(4)
        opt.found_inf = torch.zeros((), device=DEV)
        opt.step()
        want, _ = run(FUSED[name], DEV, torch.float32, steps=2, fused=True)
        del opt.found_inf, opt.grad_scale
        for p, b in zip(params, before[len(params) : 2 * len(params)], strict=True):
            self.assertEqual(p.grad.cpu(), b, atol=0, rtol=0)

    def test_first_step_skipped_leaves_a_clean_momentum(self):
        p = torch.nn.Parameter(torch.ones(20, device=DEV))
        opt = torch.optim.SGD([p], lr=0.1, momentum=0.9, fused=True)
        p.grad = torch.ones_like(p)
        opt.found_inf, opt.grad_scale = torch.ones((), device=DEV), torch.ones((), device=DEV)
        opt.step()
        self.assertEqual(p.detach().cpu(), torch.ones(20))
        opt.found_inf = torch.zeros((), device=DEV)
        opt.step()
        self.assertEqual(p.detach().cpu(), torch.full((20,), 0.9))

    def test_launches_a_step(self):
        """100 parameters: a fused step takes one launch for the counters and one for the rest."""
        for cls, kwargs, most in (
            (torch.optim.AdamW, {"fused": True}, 3),
            (torch.optim.SGD, {"fused": True, "momentum": 0.9}, 2),
            (torch.optim.AdamW, {}, 14),
            (torch.optim.SGD, {"momentum": 0.9}, 4),
        ):
            params = [torch.nn.Parameter(torch.ones(30 + n, device=DEV)) for n in range(100)]
            opt = cls(params, lr=0.01, **kwargs)
            for p in params:
                p.grad = torch.ones_like(p)
            opt.step()
            launches, waits = torch.netcl.launch_count(), torch.netcl.host_sync_count()
            opt.step()
            self.assertLessEqual(torch.netcl.launch_count() - launches, most, msg=f"{cls.__name__} {kwargs}")
            self.assertEqual(torch.netcl.host_sync_count(), waits)

    def test_refusals(self):
        p, g = torch.ones(4, device=DEV), torch.ones(4, device=DEV)
        step = torch.ones((), device=DEV)
        adam = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
        with self.assertRaisesRegex(RuntimeError, "equal length"):
            torch._fused_adam_([p], [g], [], [g], [], [step], amsgrad=False, maximize=False, **adam)
        with self.assertRaisesRegex(RuntimeError, "same sizes and strides"):
            torch._fused_adam_([p], [g[:2]], [g], [g], [], [step], amsgrad=False, maximize=False, **adam)

    def test_clip_grad_norm(self):
        for norm_type in (2.0, 1.0, float("inf")):
            results = []
            for dev in ("cpu", DEV):
                params = [p for p in parameters(dev, torch.float32) if p.numel()]
                for p in params:
                    p.grad = p.detach().clone() * 3
                total = torch.nn.utils.clip_grad_norm_(params, 1.0, norm_type)
                results.append([total.cpu(), *(p.grad.cpu() for p in params)])
            # A lane adds 256 numbers one after another: 256 * 2^-24 at worst.
            self.assertEqual(results[1], results[0], atol=1e-5, rtol=1.6e-5)


REFERENCES = {}


def reference(name, dtype, steps):
    """The same steps on the CPU in float64, one tensor at a time, from parameters and gradients rounded alike."""
    key = name, dtype, steps
    if key not in REFERENCES:
        cls, options = ALL[name]
        params = [torch.nn.Parameter(p.detach().double()) for p in parameters("cpu", dtype)]
        opt = cls(params, **options, foreach=False)
        gen = torch.Generator().manual_seed(1)
        for _ in range(steps):
            for p in params:
                p.grad = torch.randn(p.shape, generator=gen).to(dtype).double()
            opt.step()
        REFERENCES[key] = [p.detach() for p in params]
    return REFERENCES[key]


def forms():
    """Every optimiser of PyTorch's optim_db in each of its forms."""
    for info in optim_db:
        yield subtest((info, {}), name=f"{info.optim_cls.__name__}_default")
        if "foreach" in info.supported_impls:
            yield subtest((info, {"foreach": False}), name=f"{info.optim_cls.__name__}_single")
            yield subtest((info, {"foreach": True}), name=f"{info.optim_cls.__name__}_foreach")
        if {"cpu", "cuda"} & set(info.supports_fused_on):
            yield subtest((info, {"fused": True}), name=f"{info.optim_cls.__name__}_fused")


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestOptimDb(TestCase):
    STEPS = 3

    def steps(self, info, dev, dtype, kwargs):
        """The parameters after some steps; gradients depend on them, so that a wrong step affects the next."""
        gen = torch.Generator().manual_seed(0)
        # Muon takes matrices only.
        shapes = [(5, 7), (6, 3)] if info.optim_cls is torch.optim.Muon else SHAPES[:-1]
        if info.only_supports_sparse_grads:
            shapes = [s for s in shapes if s]
        params = [torch.nn.Parameter(torch.randn(s, generator=gen).to(dtype).to(dev)) for s in shapes]
        targets = [torch.randn(s, generator=gen).to(dtype).to(dev) for s in shapes]
        opt = info.optim_cls(params, **copy.deepcopy(kwargs))

        def closure():
            opt.zero_grad()
            loss = torch.zeros((), dtype=dtype, device=dev)
            for p, t in zip(params, targets, strict=True):
                loss = loss + ((p - t) ** 2).sum()
            loss.backward()
            if info.only_supports_sparse_grads:
                for p in params:
                    rows = torch.arange(len(p), device=dev)[None]
                    p.grad = torch.sparse_coo_tensor(rows, p.grad, p.shape)
            return loss

        for _ in range(self.STEPS):
            opt.step(closure)
        return [p.detach().cpu().double() for p in params]

    @parametrize("info,form", list(forms()))
    def test_against_cpu(self, info, form):
        # CUDA's tests include capturable=True, which the CPU neither accepts nor needs.
        for sample in info.optim_inputs_func(device="cuda"):
            kwargs = {**sample.kwargs, **({"max_iter": 5} if info.optim_cls is torch.optim.LBFGS else {})}
            plain = {k: v for k, v in kwargs.items() if k != "capturable"}
            want = self.steps(info, "cpu", torch.float64, plain)
            cpu = self.steps(info, "cpu", torch.float32, plain)
            with no_fallback():
                got = self.steps(info, DEV, torch.float32, {**kwargs, **form})
            # As above, a few roundings per step. If these grow (LBFGS divides differences of gradients), the error may
            # be four times the CPU's. Muon orthogonalises in bfloat16; in its five iterations the error grows from 2^-8
            # to about 2^-6 of an update, which is at most lr (0.01) times sqrt(7 / 5).
            least = 3 * 0.01 * 2**-5 if info.optim_cls is torch.optim.Muon else 3e-6
            for p, c, q in zip(got, cpu, want, strict=True):
                tolerance = max(least, 4 * (c - q).abs().max().item())
                self.assertEqual(p, q, msg=f"{sample.desc} {form}", atol=tolerance, rtol=1e-5)


instantiate_parametrized_tests(TestOptimizers)
instantiate_parametrized_tests(TestOptimDb)

if __name__ == "__main__":
    run_tests()
