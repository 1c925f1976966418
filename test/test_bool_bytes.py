"""bool tensors with bytes other than 0 and 1, such as views of uint8: any byte except 0 is True."""

import os
import warnings

import torch
from common import DEVICE
from opinfo import UNINITIALISED, arguments, compare, moved, on_cpu, samples, seeded, tensors
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.utils._pytree import tree_map

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
# These show the storage, have several valid results, or cannot be compared.
OTHERS = {"as_strided", "as_strided_copy", "chalf", "mode", "native_dropout_backward", "to_sparse", "view",
          *UNINITIALISED}


def spoil(x):
    """The same truth values in other bytes: 2, 255, 128, 1, ..."""
    if isinstance(x, torch.Tensor) and x.dtype == torch.bool and x.numel() and 0 not in x.stride():
        raw = x.view(torch.uint8)
        factors = torch.tensor([2, 255, 128, 1, 254, 3], dtype=torch.uint8, device=x.device)
        n = x.numel()
        raw.copy_(raw * factors.repeat((n + 5) // 6)[:n].view(x.shape))
    return x


def plain(x):
    """A copy on the host, with bytes 0 and 1."""
    if not isinstance(x, torch.Tensor):
        return x
    x = x.detach().cpu()
    return x.view(torch.uint8).ne(0) if x.dtype == torch.bool else x


class TestBoolBytes(TestCase):
    def check(self, op, dtype, sample):
        if not any(t.dtype == torch.bool for t in tensors(arguments(sample))):
            return 0
        expected = on_cpu(op, dtype, sample)
        inputs, args, kwargs = tree_map(spoil, moved(op, arguments(sample), DEVICE))
        got = seeded(lambda: op.op(inputs, *args, **kwargs))
        compare(op, tree_map(plain, got), expected, lambda f: f(arguments(sample)))
        return 1

    def test_view_of_bytes(self):
        def view(device):
            return torch.tensor([0, 2, 255, 1], dtype=torch.uint8, device=device).view(torch.bool)

        t, b = view(DEVICE), torch.tensor([False, True, True, True])
        other = torch.tensor([True, True, False, True])
        self.assertEqual(t.sum().item(), 3)
        self.assertEqual(t.float().tolist(), [0, 1, 1, 1])
        functions = {
            "==": lambda x, y: x == y,
            "!=": lambda x, y: x != y,
            "^": lambda x, y: x ^ y,
            "&": lambda x, y: x & y,
            "|": lambda x, y: x | y,
            "+": lambda x, y: x + y,
            "*": lambda x, y: x * y,
            "<": lambda x, y: x < y,
            ">=": lambda x, y: x >= y,
            "+ int": lambda x, y: x + 1,
            "long": lambda x, y: x.long(),
            "half": lambda x, y: x.half(),
            "cumsum": lambda x, y: x.cumsum(0),
            "sort": lambda x, y: x.sort(stable=True),
            "unique": lambda x, y: x.unique(return_counts=True),
            "max": lambda x, y: x.max(),
            "count_nonzero": lambda x, y: x.count_nonzero(),
            "nonzero": lambda x, y: x.nonzero(),
            "clone": lambda x, y: x.clone(),
            "cat": lambda x, y: torch.cat([x, y]),
            "where": lambda x, y: torch.where(x, 5, 7),
            "out": lambda x, y: torch.logical_xor(x, y, out=torch.empty_like(x)),
            "out of numbers": lambda x, y: torch.add(x, y, out=torch.empty(4, device=x.device)),
            "foreach": lambda x, y: torch._foreach_add([x, y], [y, x]),
            "foreach_copy": lambda x, y: torch._foreach_copy_([torch.empty(4, device=x.device)], [x]),
        }
        for name, f in functions.items():
            with self.subTest(name):
                self.assertEqual(tree_map(plain, f(t, other.to(DEVICE))), f(b, other))
                self.assertEqual(tree_map(plain, f(other.to(DEVICE), t)), f(other, b))
        self.assertTrue(torch.equal(t, b.to(DEVICE)) and torch.equal(b.to(DEVICE), t))
        self.assertFalse(torch.equal(t, other.to(DEVICE)))
        for name in ("__ior__", "__iand__", "__ixor__", "__iadd__", "__imul__", "logical_or_", "eq_", "copy_"):
            with self.subTest(name):
                for x, y in ((view(DEVICE), other.to(DEVICE)), (other.to(DEVICE), view(DEVICE))):
                    want = plain(x)
                    getattr(x, name)(y)
                    getattr(want, name)(plain(y))
                    self.assertEqual(plain(x), want)
        lists = [view(DEVICE)], [view(DEVICE).clone()]
        torch._foreach_mul_(*lists)
        self.assertEqual(plain(lists[0][0]), b)

    def test_operators(self):
        problems, checked = [], 0
        for op in op_db:
            # Few operators take a mask as well as numbers.
            masks = FULL or op.name.startswith(("where", "masked", "index", "nn.functional.scaled_dot", "__getitem__"))
            for dtype in {torch.bool, torch.float32 if masks else torch.bool} & set(op.supported_dtypes("cpu")):
                if op.name in OTHERS or "jiterator" in op.name:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        for sample in samples(op, dtype, 6 if FULL else 1):
                            checked += self.check(op, dtype, sample)
                    except Exception as error:
                        problems.append(f"{op.full_name} {dtype}: {type(error).__name__} {str(error)[:200]}")
        if problems:
            self.fail("\n".join(problems))
        self.assertGreater(checked, 150)


if __name__ == "__main__":
    run_tests()
