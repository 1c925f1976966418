"""Random numbers: moments, distributions, reproducibility, generators, and the same numbers on every device."""

import itertools
import math
import os

import torch
from common import Scipy, no_fallback
from random_ends import TAGS, Chosen, compiled_draw
from torch.testing._internal.common_utils import TestCase, run_tests

stats = Scipy("stats")
DEVICES = [torch.device("netcl", i) for i in range(torch.netcl.device_count())]
N = 1_000_000
FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
FP64 = torch.netcl.get_device_properties(DEVICES[0]).has_fp64


def draw(fill, device, n=N, dtype=torch.float32):
    torch.manual_seed(1234)
    with no_fallback():
        fill(x := torch.empty(n, device=device, dtype=dtype))
    return x.cpu()


class TestRandom(TestCase):
    def test_distributions(self):
        # Kolmogorov-Smirnov test: a p-value below 1e-4 happens by chance once in 10,000 runs, and the seed is fixed.
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
        # Allow five standard errors of mean, variance, skewness and kurtosis of n normal numbers.
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
        for dtype in (torch.bool, torch.uint8, torch.int64):
            x = draw(lambda x: x.bernoulli_(0.3), DEVICES[0], dtype=dtype)
            self.assertLess(abs(x.double().mean().item() - 0.3), 5 * math.sqrt(0.21 / N))
        x = draw(lambda x: x.random_(-5, 7), DEVICES[0], dtype=torch.int64)
        counts = torch.bincount(x + 5, minlength=12)
        self.assertGreater(stats.chisquare(counts.numpy()).pvalue, 1e-4)
        for dtype in (torch.float32, torch.int8, torch.int64):
            x = draw(lambda x: x.geometric_(0.25), DEVICES[0], dtype=dtype)
            self.assertLess(abs(x.double().mean().item() - 4), 5 * math.sqrt(12 / N))
        with self.assertRaisesRegex(RuntimeError, "not implemented for Bool"):
            torch.ones(4, dtype=torch.bool, device=DEVICES[0]).geometric_(0.25)
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

    def test_large_permutations(self):
        """From 65,536 numbers on, each element is computed from its place. Of a random permutation of n numbers, fixed
        points, and neighbours that stay neighbours, are Poisson numbers with a mean of 1, and the sum of |p[i] - i| is
        n^2 / 3 with a variance of 2 n^3 / 45 (Diaconis and Graham, 1977)."""
        for n in (65_535, 65_536, 65_537, 131_071, 150_000):
            fixed = neighbours = distance = 0.0
            place = torch.arange(n)
            for seed in range(20):
                torch.manual_seed(seed)
                p = torch.randperm(n, device=DEVICES[0]).cpu()
                self.assertEqual(p.sort().values, place)
                fixed += (p == place).sum().item()
                neighbours += (p.diff() == 1).sum().item()
                distance += ((p - place).abs().sum().item() - n**2 / 3) / math.sqrt(2 * n**3 / 45)
            self.assertLess(abs(fixed - 20), 5 * math.sqrt(20))
            self.assertLess(abs(neighbours - 20), 5 * math.sqrt(20))
            self.assertLess(abs(distance), 5 * math.sqrt(20))
            torch.manual_seed(19)
            self.assertEqual(torch.randperm(n, device=DEVICES[0]).cpu(), p)
            out = torch.empty(2 * n, dtype=torch.int32, device=DEVICES[0])[::2]
            torch.manual_seed(19)
            self.assertEqual(torch.randperm(n, device=DEVICES[0], dtype=torch.int32, out=out).cpu(), p.int())

    def test_multinomial_of_nothing(self):
        for size in ((0,), (3, 0)):
            for samples in (1, 100):
                with self.assertRaises(RuntimeError):
                    torch.multinomial(torch.empty(size, device=DEVICES[0]), samples, replacement=True)

    def test_native_dropout_dtypes(self):
        x = torch.full((N,), 1 + 2j, device=DEVICES[0])
        y, mask = torch.native_dropout(x, 0.25, True)
        self.assertEqual(y, torch.where(mask, x / 0.75, 0))
        self.assertLess(abs(mask.float().mean().item() - 0.75), 5 * math.sqrt(0.1875 / N))
        with self.assertRaisesRegex(RuntimeError, "not implemented"):
            torch.native_dropout(torch.ones(5, dtype=torch.long, device=DEVICES[0]), 0.5, True)

    def test_integers_are_even(self):
        # A range of 3e9 out of 2^32: a remainder of 32 bits would draw the lower 1.29e9 twice as often as the others.
        x = draw(lambda x: x.random_(0, 3_000_000_000), DEVICES[0], dtype=torch.int64)
        below = (x < 1_294_967_296).double().mean().item()
        self.assertLess(abs(below - 1_294_967_296 / 3e9), 5 * math.sqrt(0.25 / N))

    def test_randperm_that_its_dtype_cannot_hold(self):
        for dtype, n in ((torch.uint8, 257), (torch.float16, 2050)):
            for device in ("cpu", DEVICES[0]):
                with self.assertRaisesRegex(RuntimeError, "n is too large|n cannot be greater|cannot be converted"):
                    torch.randperm(n, dtype=dtype, device=device)

    def test_weights_are_checked(self):
        """The device checks them, so the next synchronising call raises."""
        for bad in (-0.5, math.nan, math.inf):
            weights = torch.tensor([[1.0, 2.0, 3.0], [1.0, bad, 3.0]], device=DEVICES[0])
            for samples, replacement in ((4, True), (1, True), (2, False)):
                with self.assertRaisesRegex(RuntimeError, "either `inf`, `nan` or element < 0"):
                    torch.multinomial(weights, samples, replacement)
                    torch.netcl.synchronize()
        torch.multinomial(torch.zeros(5, device=DEVICES[0]), 4, replacement=True)
        with self.assertRaisesRegex(RuntimeError, "sum of probabilities <= 0"):
            torch.netcl.synchronize()


#: Words at and near the ends and the middle; the first of a pair is for even words, the second for odd ones.
WORDS = [0, 1, 0xFF, 0x100, 0x7FFFFFFF, 0x80000000, 0xFFFFFEFF, 0xFFFFFF00, 0xFFFFFFFE, 0xFFFFFFFF]
PAIRS = list(itertools.product(WORDS, repeat=2))


class TestEnds(TestCase):
    """The transforms for extreme words, and (make test-full) the extremes in large draws."""

    def values(self, dist, dtype, a, b=0.0, probabilities=None):
        """(pairs, values of a group): the values of a distribution for each pair of words."""
        wide = dtype == torch.float64
        acc = "f64" if wide else "f32"
        defs = {"OP": dist, "OUT": TAGS[dtype], "ACC": acc, **({"WIDE": 1} if wide else {})}
        fill = Chosen("random.cl", "fill", DEVICES[0], **defs)
        unwritten = math.nan if dtype.is_floating_point else -1
        out = torch.full((len(PAIRS), 32 if wide else 64), unwritten, dtype=dtype, device=DEVICES[0])
        err = torch.zeros(4, dtype=torch.int32, device=DEVICES[0])
        for row, (even, odd) in zip(out, PAIRS, strict=True):
            fill(row, probabilities, err, odd << 32 | even, 0, row.numel(), 1, 1, a, b)
        self.assertEqual(err[0].item(), 0)
        return out.cpu().double()

    def dtypes(self, *more):
        return [torch.float32, *more, *([torch.float64] if FP64 else [])]

    def test_uniform(self):
        for dtype in self.dtypes(torch.float16):
            for low, high in ((0.0, 1.0), (-2.0, 3.0), (1.0, 1.0 + 2 * torch.finfo(dtype).eps)):
                x = self.values("uniform", dtype, low, high)
                self.assertEqual(((x >= low) & (x < high)).all().item(), True, f"{dtype} {low}")

    def test_exponential(self):
        for dtype in self.dtypes(torch.float16, torch.bfloat16):
            x = self.values("exponential", dtype, 1.0)
            self.assertTrue((x > 0).all(), dtype)
            # The least and the largest are CUDA's: half of epsilon, and -log(2^-33) (2^-53 for doubles).
            compute = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32)
            self.assertEqual(x.min().item(), compute.eps / 2, rtol=1e-3, atol=0)
            largest = 53 if dtype == torch.float64 else 33
            self.assertEqual(x.max().item(), largest * math.log(2), rtol=torch.finfo(dtype).eps, atol=0)
            # gumbel_softmax takes this logarithm.
            self.assertTrue(x.log().isfinite().all(), dtype)

    def test_normal(self):
        for dtype in self.dtypes():
            x = self.values("normal", dtype, 0.0, 1.0)
            bits = 53 if dtype == torch.float64 else 33
            self.assertLessEqual(x.abs().max().item(), math.sqrt(2 * bits * math.log(2)) + 1e-6)
            self.assertGreater(x.abs().max().item(), 6.7)
            y = self.values("log_normal", dtype, 0.0, 1.0)
            self.assertEqual(y, x.exp(), rtol=1e-5, atol=0)

    def test_cauchy(self):
        for dtype in self.dtypes(torch.bfloat16):
            x = self.values("cauchy", dtype, 0.0, 1.0)
            self.assertTrue(x.isfinite().all(), dtype)
            # A word and its complement give a number and its negative; the lower half is negative.
            table = dict(zip(PAIRS, x, strict=True))
            for even, odd in PAIRS:
                opposite = table.get((even ^ 0xFFFFFFFF, odd ^ 0xFFFFFFFF))
                if opposite is not None:
                    self.assertEqual(opposite, -table[even, odd], rtol=0, atol=0)
            first = torch.tensor([table[w, w][0] for w in WORDS])
            self.assertEqual(first.sign(), torch.tensor([-1.0 if w < 1 << 31 else 1.0 for w in WORDS]).double())
            self.assertTrue((first.diff() >= 0).all(), dtype)

    def test_geometric(self):
        for dtype in (*self.dtypes(torch.float16), torch.int64):
            for p in (0.25, 1 - 1e-12, 1e-3):
                x = self.values("geometric", dtype, p)
                self.assertTrue(((x >= 1) & x.isfinite()).all(), f"{dtype} {p}")

    def test_bernoulli_and_dropout(self):
        n = 64
        for p in (0.0, 1.0):
            self.assertTrue((self.values("bernoulli", torch.float32, p) == p).all(), p)
            given = torch.full((n,), p, device=DEVICES[0])
            self.assertTrue((self.values("bernoulli_tensor", torch.float32, 0.0, 0.0, given) == p).all(), p)
        drop = Chosen("dropout.cl", "dropout", DEVICES[0], IO="f32", ACC="f32")
        x, out = torch.ones(n, device=DEVICES[0]), torch.empty(n, device=DEVICES[0])
        mask = torch.empty(n, dtype=torch.bool, device=DEVICES[0])
        for keep in (0.0, 1.0):
            for even, odd in PAIRS:
                drop(out, mask, x, odd << 32 | even, 0, n, 1, 0, keep, 1.0)
                self.assertEqual(out.cpu(), torch.full((n,), keep))
                self.assertEqual(mask.cpu(), torch.full((n,), keep == 1))

    def test_rejection(self):
        """Gamma, Poisson and binomial numbers, whose first eight words are chosen."""
        counts = (0.0, 1.0, 15.0, 1e4)
        cases = [
            ("gamma", dtype, (0.0, 1e-30, 0.1, 1.0, 3.0, 300.0), 0.0, lambda x, a, b: (x > 0) & x.isfinite())
            for dtype in self.dtypes(torch.float16)
        ] + [
            ("poisson", torch.float32, (0.0, 1e-20, 0.5, 9.9, 10.0, 1e4), 0.0, lambda x, a, b: (x >= 0) & (x % 1 == 0)),
            ("binomial", torch.float32, counts, 0.3, lambda x, a, b: (x >= 0) & (x <= a) & (x % 1 == 0)),
            ("binomial", torch.float32, counts, 1.0, lambda x, a, b: x == a),
        ]
        for dist, dtype, firsts, second, valid in cases:
            acc = "f64" if dtype == torch.float64 else "f32"
            draw = Chosen("sampling.cl", "sample", DEVICES[0], OP=dist, IO=TAGS[dtype], ACC=acc)
            first = torch.tensor(firsts, dtype=dtype, device=DEVICES[0])
            other = torch.full_like(first, second)
            err = torch.zeros(4, dtype=torch.int32, device=DEVICES[0])
            n = len(firsts)
            rows = torch.full((len(PAIRS), 64), math.nan, dtype=dtype, device=DEVICES[0])
            for row, (even, odd) in zip(rows, PAIRS, strict=True):
                draw(row, first, other, err, odd << 32 | even, 0, n, n, 1, 0.0, 0.0)
            out = rows[:, :n]
            good = valid(out.cpu(), first.cpu(), other.cpu())
            self.assertTrue(good.all(), f"{dist} {dtype}: {out.cpu()[~good]} of {first.cpu().expand_as(good)[~good]}")

    def test_multinomial(self):
        """A class without weight is never drawn, even if the point is at an end or the sums are not monotonic."""
        pick = Chosen("multinomial.cl", "pick", DEVICES[0], ACC="f32")
        weights = torch.tensor([0.0, 0.0, 1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 0.0], device=DEVICES[0])
        points = torch.tensor([0.0, 2**-24, 1 / 6, 0.5, 1 - 2**-24, 1.0], device=DEVICES[0])
        points = torch.cat([points, points * (1 + 2**-22), points * (1 - 2**-22)])
        err = torch.zeros(4, dtype=torch.int32, device=DEVICES[0])
        found = torch.empty(points.numel(), dtype=torch.int64, device=DEVICES[0])
        for wrong in (0.0, 2**-20):
            sums = weights.cumsum(0)
            sums[[3, 5, 7]] += wrong  # the sums of several work-items may be off like this
            n = found.numel()
            pick(found, points, sums, weights, err, n, n, n, sums.numel(), 1)
            self.assertTrue((weights[found] > 0).all().item(), found)
            if wrong == 0:
                self.assertEqual(found[:6].cpu(), torch.tensor([2, 2, 4, 6, 6, 6]))
        self.assertEqual(err[0].item(), 0)

    def test_compiled(self):
        out = torch.empty(len(PAIRS), 5, device=DEVICES[0])
        whole = torch.empty(len(PAIRS), dtype=torch.long, device=DEVICES[0])
        call = compiled_draw(DEVICES[0])
        for low, high in ((0, 1), (-5, 5), (-(2**63), 2**63 - 1)):
            for k, (even, odd) in enumerate(PAIRS):
                block = odd << 32 | even
                call(out, whole, k, block - (block >> 63 << 64), low, high)
            self.assertTrue(((whole >= low) & (whole < high)).all().item(), f"{low} {high}")
        uniform, again, half, bfloat16, normal = out.cpu().T
        self.assertEqual(uniform, again, rtol=0, atol=0)
        for x in (uniform, half, bfloat16, half.half(), bfloat16.bfloat16()):
            self.assertTrue(((x > 0) & (x < 1)).all())
            # exponential_ is decomposed into this logarithm.
            self.assertTrue(x.float().log().isfinite().all())
        self.assertEqual(half.half().float(), half)
        self.assertEqual(bfloat16.bfloat16().float(), bfloat16)
        self.assertTrue((normal.abs() < 7).all())
        self.assertGreater(normal.abs().max().item(), 6.7)

    def test_large_draws(self):
        n = 400_000_000 if FULL else 4_000_000
        torch.manual_seed(9)
        x = torch.empty(n, device=DEVICES[0])
        inside = {
            "exponential_": lambda: (x.exponential_() > 0).all() & x.amax().isfinite(),
            "gumbel": lambda: x.exponential_().log_().amin().isfinite(),
            "uniform_": lambda: (x.uniform_() >= 0).all() & (x.amax() < 1),
            "cauchy_": lambda: x.cauchy_().abs_().amax().isfinite(),
            "geometric_": lambda: (x.geometric_(0.3) >= 1).all(),
            "normal_": lambda: (x.normal_().abs_() < 7).all(),
        }
        for name, test in inside.items():
            self.assertTrue(test().item(), name)
        weights = torch.zeros(1000, device=DEVICES[0])
        weights[1::2] = 1
        self.assertTrue((torch.multinomial(weights, n // 40, replacement=True) % 2 == 1).all().item())


if __name__ == "__main__":
    run_tests()
