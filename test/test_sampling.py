"""Gamma, Poisson, binomial and Dirichlet numbers: distributions, edges, reproducibility, reparameterised gradients."""

import math

import torch
from common import Scipy, no_fallback
from torch.testing._internal.common_utils import TestCase, run_tests

special, stats = Scipy("special"), Scipy("stats")
DEVICES = [torch.device("netcl", i) for i in range(torch.netcl.device_count())]
N = 100_000


def draw(f, *parameters, n=N, device=DEVICES[0], dtype=torch.float32):
    torch.manual_seed(4321)
    with no_fallback():
        return f(*(torch.full((n,), float(p), device=device, dtype=dtype) for p in parameters)).cpu()


class TestSampling(TestCase):
    def check_discrete(self, x, distribution, name):
        """Chi-square test over the values that are expected 20 times or more, and the rest as one class.

        A p-value below 1e-4 happens by chance once in 10,000 runs; the seed is fixed.
        """
        self.assertEqual(x, x.floor())
        low, high = (int(v) for v in distribution.interval(1 - 40 / len(x)))
        edges = torch.arange(low, high + 1)
        expected = torch.tensor(distribution.pmf(edges.numpy())) * len(x)
        # Combine neighbours, so that a wide distribution has about a hundred classes.
        group = max(1, len(edges) // 100)
        inside = x[(x >= low) & (x <= high)].long() - low
        counts = torch.bincount(inside // group, minlength=math.ceil(len(edges) / group)).double()
        sums = torch.zeros_like(counts).index_add(0, (edges - low) // group, expected)
        counts = torch.cat([counts, torch.tensor([len(x) - counts.sum()]).double()])
        sums = torch.cat([sums, (len(x) - sums.sum()).view(1)])
        self.assertGreater(stats.chisquare(counts.numpy(), sums.numpy()).pvalue, 1e-4, name)

    def test_gamma(self):
        for shape in (0.1, 0.7, 1.0, 5.0, 1000.0):
            x = draw(torch._standard_gamma, shape).double().numpy()
            # The KS distance of N exact draws is 2.2 / sqrt(N) at a p-value of 1e-4; float adds no step that counts.
            self.assertLess(stats.kstest(x, stats.gamma(shape).cdf).statistic, 2.23 / math.sqrt(N), shape)
        self.assertGreater(draw(torch._standard_gamma, 1e-3).min().item(), 0)
        self.assertTrue(draw(torch._standard_gamma, math.nan, n=3).isnan().all())

    def test_poisson(self):
        for rate in (0.3, 4.0, 10.0, 37.5, 1e4, 1e6):
            self.check_discrete(draw(torch.poisson, rate), stats.poisson(rate), f"poisson {rate}")
        x = draw(lambda r: torch.poisson(r), 5.0, dtype=torch.bfloat16).float()
        self.assertLess(abs(x.mean().item() - 5), 5 * math.sqrt(5 / N))
        self.assertEqual(torch.poisson(torch.zeros(3, device=DEVICES[0])).cpu(), torch.zeros(3))
        for bad in (-1.0, math.nan):
            torch.poisson(torch.tensor([2.0, bad], device=DEVICES[0]))
            with self.assertRaisesRegex(RuntimeError, "invalid Poisson rate, expected rate to be non-negative"):
                torch.netcl.synchronize()

    def test_binomial(self):
        for n, p in ((5, 0.3), (40, 0.1), (30, 0.5), (100, 0.83), (1e6, 0.25)):
            self.check_discrete(draw(torch.binomial, n, p), stats.binom(n, p), f"binomial {n} {p}")
        n = torch.tensor([0.0, 7.0, 7.0, math.nan, 7.0], device=DEVICES[0])
        p = torch.tensor([0.5, 0.0, 1.0, 0.5, math.nan], device=DEVICES[0])
        self.assertEqual(torch.binomial(n, p).cpu(), torch.tensor([0.0, 0.0, 7.0, math.nan, math.nan]))
        with self.assertRaisesRegex(RuntimeError, "one dtype"):
            torch.binomial(n, p.bfloat16())

    def test_dirichlet(self):
        alpha = torch.tensor([0.5, 2.0, 4.0], device=DEVICES[0])
        torch.manual_seed(1)
        with no_fallback():
            x = torch._sample_dirichlet(alpha.expand(N, 3)).cpu().double()
        self.assertEqual(x.sum(1), torch.ones(N).double(), atol=1e-6, rtol=0)
        for k, a in enumerate(alpha.tolist()):
            mean, total = a / 6.5, 6.5
            self.assertLess(abs(x[:, k].mean().item() - mean), 5 * math.sqrt(mean * (1 - mean) / (total + 1) / N))

    def test_same_seed_same_numbers(self):
        for f, p in ((torch._standard_gamma, 0.4), (torch.poisson, 40.0)):
            first = draw(f, p, n=5003)
            self.assertEqual(draw(f, p, n=100), first[:100], rtol=0, atol=0)
            for device in DEVICES[1:]:
                # The devices' logarithms differ in the last place, which changes a number slightly or, rarely, a
                # decision.
                other = draw(f, p, n=5003, device=device)
                self.assertLess(((other - first).abs() > 1e-5 * first).sum().item(), 5)
        g = torch.Generator(device=DEVICES[0]).manual_seed(3)
        x = torch.full((50,), 20.0, device=DEVICES[0])
        self.assertNotEqual(torch.poisson(x, generator=g), torch.poisson(x, generator=g))

    def test_gamma_gradient(self):
        # The reference is a central difference of SciPy's incomplete gamma function: its error is about h^2 + 1e-16 /
        # h.
        a, z = torch.meshgrid(torch.tensor([0.05, 0.5, 1.0, 3.0, 20.0, 300.0, 3000.0]).double(),
                              torch.tensor([0.02, 0.3, 0.5, 0.8, 0.99]).double(), indexing="ij")
        x = torch.tensor(special.gammaincinv(a.numpy(), z.numpy())).clamp_min(1e-30)
        h = 1e-5 * a
        low, high, at = (a - h).numpy(), (a + h).numpy(), x.numpy()
        slope = torch.tensor(special.gammainc(high, at) - special.gammainc(low, at)) / (2 * h)
        expected = -slope / torch.tensor(stats.gamma.pdf(at, a.numpy()))
        with no_fallback():
            got = torch._standard_gamma_grad(a.float().to(DEVICES[0]), x.float().to(DEVICES[0])).cpu()
        # float's digamma and logarithm cancel to 1 / sqrt(a) of their size: 6e-8 sqrt(3000) log(3000) at worst.
        self.assertEqual(got.double(), expected, rtol=1e-4, atol=1e-6)

    def test_dirichlet_gradient(self):
        a, b, z = torch.meshgrid(torch.tensor([0.2, 1.0, 4.0, 50.0]).double(), torch.tensor([0.3, 2.0, 30.0]).double(),
                                 torch.tensor([0.05, 0.4, 0.9]).double(), indexing="ij")
        # Numbers that a float can tell from 0 and 1.
        x = torch.tensor(special.betaincinv(a.numpy(), b.numpy(), z.numpy())).clamp(1e-6, 0.999).float().double()
        h = 1e-5 * a
        low, high, beta, at = (a - h).numpy(), (a + h).numpy(), b.numpy(), x.numpy()
        slope = torch.tensor(special.betainc(high, beta, at) - special.betainc(low, beta, at)) / (2 * h)
        expected = -slope / torch.tensor(stats.beta.pdf(at, a.numpy(), beta)) / (1 - x)
        with no_fallback():
            got = torch._dirichlet_grad(*(t.float().to(DEVICES[0]) for t in (x, a, a + b))).cpu()
        self.assertEqual(got.double(), expected, rtol=1e-4, atol=1e-6)

    def test_rsample(self):
        # The mean of Gamma(a) is a, and so is its variance, so the gradient of the sample mean is 1.
        a = torch.full((20_000,), 3.0, device=DEVICES[0], requires_grad=True)
        with no_fallback():
            torch.distributions.Gamma(a, torch.ones_like(a)).rsample().mean().backward()
        self.assertLess(abs(a.grad.sum().item() - 1), 5 / math.sqrt(20_000))


if __name__ == "__main__":
    run_tests()
