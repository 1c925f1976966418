"""torch.use_deterministic_algorithms, with the operators that PyTorch's documentation names. netcl raises for those
that the CPU refuses too, and gives the same bits twice for the others, however many indices are equal."""

import torch
import torch.nn.functional as F
from torch.testing._internal.common_utils import TestCase, run_tests

D = torch.device("netcl", 0)


def table(t):
    """name -> call. `t` moves a tensor to the device; all random numbers are drawn on the CPU."""
    g = torch.Generator().manual_seed(5)
    rows, source = t(torch.rand(7, 40, generator=g)), t(torch.rand(500, 40, generator=g))
    many = t(torch.randint(7, (500,), generator=g))
    wide = many[:, None].expand(500, 40)
    image, volume = t(torch.rand(2, 3, 12, 12, generator=g)), t(torch.rand(1, 2, 8, 8, 8, generator=g))
    grid, grid3 = t(torch.rand(2, 30, 30, 2, generator=g)), t(torch.rand(1, 9, 9, 9, 3, generator=g))
    places = t(torch.randint(9, (2, 3, 12, 12), generator=g))
    targets = t(torch.randint(1, 40, (2, 5), generator=g))
    twice = t(torch.full((7,), 2))

    def slope(f, x):
        a = x.clone().requires_grad_()
        y = f(a)
        return torch.autograd.grad(y, a, torch.ones_like(y))[0]

    cases = {
        "index_put": lambda: rows.index_put((many,), source),
        "index_put accumulate": lambda: rows.index_put((many,), source, accumulate=True),
        "put": lambda: rows.put(many, source[:, 0]),
        "put accumulate": lambda: rows.put(many, source[:, 0], accumulate=True),
        "getitem": lambda: slope(lambda x: x[many], rows),
        "scatter": lambda: rows.scatter(0, wide, source),
        "scatter_add": lambda: rows.scatter_add(0, wide, source),
        "gather": lambda: slope(lambda x: x.gather(0, wide), rows),
        "index_add": lambda: rows.index_add(0, many, source),
        "index_select": lambda: slope(lambda x: x.index_select(0, many), rows),
        "index_copy": lambda: rows.index_copy(0, many, source),
        "repeat_interleave": lambda: slope(lambda x: x.repeat_interleave(twice, 0), rows),
        "embedding": lambda: slope(lambda x: F.embedding(many, x), rows),
        "embedding_bag max": lambda: slope(lambda x: F.embedding_bag(many.view(5, 100), x, mode="max"), rows),
        "histc": lambda: torch.histc(source, 9),
        "bincount": lambda: torch.bincount(many, source[:, 0].contiguous()),
        "median": lambda: torch.cat([v.float() for v in source.median(0)]),
        "cumsum": lambda: source.cumsum(0),
        "nll_loss": lambda: F.nll_loss(source, many),
        "nll_loss2d": lambda: F.nll_loss(image, places[:, 0] % 3),
        "ctc_loss": lambda: slope(
            lambda x: F.ctc_loss(x[:60].view(30, 2, 40).log_softmax(2), targets, (30, 30), (5, 5)), source
        ),
        "grid_sample": lambda: slope(lambda x: F.grid_sample(x, grid, align_corners=False), image),
        "grid_sample 3d": lambda: slope(lambda x: F.grid_sample(x, grid3, align_corners=False), volume),
        "avg_pool3d": lambda: slope(lambda x: F.avg_pool3d(x, 3, 1), volume),
        "max_pool3d": lambda: slope(lambda x: F.max_pool3d(x, 3, 1), volume),
        "adaptive_avg_pool2d": lambda: slope(lambda x: F.adaptive_avg_pool2d(x, 7), image),
        "adaptive_avg_pool3d": lambda: slope(lambda x: F.adaptive_avg_pool3d(x, 5), volume),
        "adaptive_max_pool2d": lambda: slope(lambda x: F.adaptive_max_pool2d(x, 7), image),
        "max_unpool1d": lambda: F.max_unpool1d(image[0, :, 0], places[0, :, 0], 2),
        "max_unpool2d": lambda: F.max_unpool2d(image, places, 2),
        "max_unpool3d": lambda: F.max_unpool3d(image, places, 2),
    }
    for reduce in ("sum", "mean", "prod", "amax"):
        cases[f"scatter_reduce {reduce}"] = lambda r=reduce: rows.scatter_reduce(0, wide, source, r)
    for mode in ("reflect", "replicate"):
        cases[f"pad {mode}"] = lambda m=mode: slope(lambda x: F.pad(x, (3, 3, 3, 3), mode=m), image)
        cases[f"pad 3d {mode}"] = lambda m=mode: slope(lambda x: F.pad(x, (3, 3, 3, 3, 3, 3), mode=m), volume)
    for mode in ("bilinear", "bicubic"):
        cases[f"interpolate {mode}"] = lambda m=mode: slope(lambda x: F.interpolate(x, size=(29, 31), mode=m), image)
    cases["interpolate linear"] = lambda: slope(lambda x: F.interpolate(x, size=29, mode="linear"), image[0])
    cases["interpolate trilinear"] = lambda: slope(lambda x: F.interpolate(x, size=(9, 9, 9), mode="trilinear"), volume)
    return cases


class TestDeterministic(TestCase):
    def setUp(self):
        super().setUp()
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)

    def test_alerts_and_repeats(self):
        here, there = table(lambda x: x), table(lambda x: x.to(D))
        wrong = []
        for name in here:
            alerts, results = [], []
            for call in (here[name], there[name]):
                try:
                    call()
                    alerts.append(False)
                except RuntimeError as e:
                    self.assertIn("deterministic", str(e), name)
                    alerts.append(True)
            if alerts[0] != alerts[1]:
                wrong.append(f"{name}: the CPU alerts: {alerts[0]}, netcl: {alerts[1]}")
            if alerts[1]:
                continue
            results = [there[name]().cpu() for _ in range(3)]
            if not all(torch.equal(results[0], r) for r in results):
                wrong.append(f"{name}: not the same twice")
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))


if __name__ == "__main__":
    run_tests()
