"""Random numbers: moments, distributions, reproducibility, generators, and the same numbers on every device."""

import math

import torch
from common import no_fallback
from scipy import stats
from torch.testing._internal.common_utils import TestCase, run_tests

DEVICES = [torch.device("netcl", i) for i in range(torch.netcl.device_count())]
N = 1_000_000


def draw(fill, device, n=N, dtype=torch.float32):
    torch.manual_seed(1234)
    with no_fallback():
        fill(x := torch.empty(n, device=device, dtype=dtype))
    return x.cpu()


class TestRandom(TestCase):
    def test_distributions(self):
        # Kolmogorov and Smirnov: a p-value below 1e-4 happens by chance once in 10,000 runs, and the seed is fixed.
        cases = {
            "uniform": (lambda x: x.uniform_(-2, 3), stats.uniform(-2, 5)),
            "normal": (lambda x: x.normal_(1, 2), stats.norm(1, 2)),
            "exponential": (lambda x: x.exponential_(0.5), stats.expon(scale=2)),
            "cauchy": (lambda x: x.cauchy_(1, 2), stats.cauchy(1, 2)),
            "log_normal": (lambda x: x.log_normal_(0, 0.5), stats.lognorm(0.5)),
        }
        for name, (fill, distribution) in cases.items():
            p = stats.kstest(draw(fill, DEVICES[0]).double().numpy()[:: N // 100_000], distribution.cdf).pvalue
            self.assertGreater(p, 1e-4, name)

    def test_moments(self):
        x = draw(lambda x: x.normal_(), DEVICES[0]).double()
        # Standard errors of mean, variance, skewness and kurtosis of n normal numbers; five of them.
        for value, expected, error in (
            (x.mean(), 0, 1 / math.sqrt(N)),
            (x.var(), 1, math.sqrt(2 / N)),
            ((x**3).mean(), 0, math.sqrt(15 / N)),
            ((x**4).mean(), 3, math.sqrt(96 / N)),
        ):
            self.assertLess(abs(value.item() - expected), 5 * error)
        # Neighbours, and the two normals of a pair, are independent.
        self.assertLess(abs((x[1:] * x[:-1]).mean().item()), 5 / math.sqrt(N))
        self.assertLess(abs((x[16:] * x[:-16]).mean().item()), 5 / math.sqrt(N))

    def test_discrete(self):
        x = draw(lambda x: x.bernoulli_(0.3), DEVICES[0])
        self.assertLess(abs(x.mean().item() - 0.3), 5 * math.sqrt(0.21 / N))
        x = draw(lambda x: x.random_(-5, 7), DEVICES[0], dtype=torch.int64)
        counts = torch.bincount(x + 5, minlength=12)
        self.assertGreater(stats.chisquare(counts.numpy()).pvalue, 1e-4)
        x = draw(lambda x: x.geometric_(0.25), DEVICES[0])
        self.assertLess(abs(x.mean().item() - 4), 5 * math.sqrt(12 / N))
        p = torch.tensor([0.0, 1.0, 0.5], device=DEVICES[0])
        b = torch.bernoulli(p.expand(10000, 3)).mean(0).cpu()
        self.assertEqual(b[:2], torch.tensor([0.0, 1.0]))

    def test_probabilities_are_checked(self):
        for bad in (-0.1, 1.5, float("nan")):
            torch.bernoulli(torch.tensor([0.5] * 70 + [bad], device=DEVICES[0]))
            with self.assertRaisesRegex(RuntimeError, "Expected 0 <= p <= 1"):
                torch.netcl.synchronize()
        torch.bernoulli(torch.tensor([0.0, 1.0] * 40 + [0.5], device=DEVICES[0])).sum().item()

    def test_uniform_stays_below_the_end(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            x = draw(lambda x: x.uniform_(), DEVICES[0], dtype=dtype)
            self.assertLess(x.max().item(), 1)
            self.assertGreaterEqual(x.min().item(), 0)

    def test_same_numbers_everywhere(self):
        for fill, dtype in ((lambda x: x.uniform_(), torch.float32), (lambda x: x.random_(0, 1000), torch.int64)):
            first = draw(fill, DEVICES[0], 1003, dtype)
            for device in DEVICES[1:]:
                self.assertEqual(draw(fill, device, 1003, dtype), first, rtol=0, atol=0)

    def test_same_seed_same_numbers_whatever_the_length(self):
        short, long = draw(lambda x: x.uniform_(), DEVICES[0], 100), draw(lambda x: x.uniform_(), DEVICES[0], 99_999)
        self.assertEqual(long[:100], short, rtol=0, atol=0)

    def test_view_is_filled_and_nothing_else(self):
        x = torch.zeros(10, 10, device=DEVICES[0])
        x[2:5, ::3].normal_()
        self.assertEqual((x != 0).sum().item(), 12)

    def test_states(self):
        device = DEVICES[0]
        torch.netcl.manual_seed(7)
        state = torch.netcl.get_rng_state(device)
        a = torch.rand(5, device=device).cpu()
        b = torch.rand(5, device=device).cpu()
        torch.netcl.set_rng_state(state, device)
        self.assertEqual(torch.rand(5, device=device).cpu(), a)
        self.assertEqual(torch.rand(5, device=device).cpu(), b)
        self.assertNotEqual(a, b)
        self.assertEqual(torch.netcl.initial_seed(), 7)
        g = torch.Generator(device=device).manual_seed(7)
        self.assertEqual(torch.rand(5, device=device, generator=g).cpu(), a)
        clone = g.clone_state()
        self.assertEqual(torch.rand(5, device=device, generator=g), torch.rand(5, device=device, generator=clone))
        with torch.random.fork_rng(device_type="netcl"):
            torch.rand(3, device=device)
        with self.assertRaises(RuntimeError):
            torch.rand(3, device=device, generator=torch.Generator())

    def test_dropout(self):
        x = torch.ones(N, device=DEVICES[0], requires_grad=True)
        y = torch.nn.functional.dropout(x, 0.25)
        y.sum().backward()
        self.assertLess(abs(y.mean().item() - 1), 5 * math.sqrt(1 / 3 / N))
        self.assertEqual(x.grad, y.detach())
        self.assertEqual(set(y.unique().tolist()), {0.0, torch.tensor(1 / 0.75).item()})
        self.assertEqual(torch.nn.functional.dropout(x, 0.25, training=False), x)

    def test_permutation_and_multinomial(self):
        p = torch.randperm(1000, device=DEVICES[0])
        self.assertEqual(p.sort().values.cpu(), torch.arange(1000))
        self.assertNotEqual(p.cpu(), torch.arange(1000))
        weights = torch.tensor([1.0, 0.0, 3.0], device=DEVICES[0])
        x = torch.multinomial(weights, 100_000, replacement=True).cpu()
        counts = torch.bincount(x, minlength=3)
        self.assertEqual(counts[1].item(), 0)
        self.assertLess(abs(counts[2].item() - 75_000), 5 * math.sqrt(100_000 * 0.1875))
        self.assertEqual(torch.multinomial(weights, 2).sort().values.cpu(), torch.tensor([0, 2]))


if __name__ == "__main__":
    run_tests()
