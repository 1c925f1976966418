"""torch._assert_async: an assertion about a value on the device, which raises at the next synchronising call."""


import torch
from common import no_fallback
from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests

D = torch.device("netcl", 0)


class TestAssert(TestCase):
    def test_true_passes_and_false_raises_later(self):
        values = [torch.tensor([2.5]), torch.tensor([float("nan")]), torch.tensor(True), torch.tensor(-1j)]
        values = [v.to(D) for v in values]
        zeros = [torch.zeros((), device=D), torch.zeros(1, device=D, dtype=torch.int64)]
        torch.netcl.synchronize()
        syncs = torch.netcl.host_sync_count()
        with no_fallback():
            for v in values:
                torch._assert_async(v, "not raised")
            torch._assert_async(zeros[0], "the loss became 0")
        self.assertEqual(torch.netcl.host_sync_count(), syncs)
        with self.assertRaisesRegex(RuntimeError, "the loss became 0"):
            torch.netcl.synchronize()
        torch.netcl.synchronize()  # once only
        torch._assert_async(zeros[1])
        with self.assertRaisesRegex(RuntimeError, "Expected Tensor with single nonzero value, but got zero"):
            zeros[1].item()

    def test_beside_a_bad_index(self):
        """A message that equals an operator's name is not treated as such."""
        torch._assert_async(torch.zeros(1, device=D), "aten::index")
        with self.assertRaises(RuntimeError) as raised:
            torch.netcl.synchronize()
        self.assertNotIsInstance(raised.exception, IndexError)
        with self.assertRaisesRegex(IndexError, "out of bounds"):
            torch.ones(3, device=D)[torch.tensor([7], device=D)].cpu()

    def test_refuses_many_values(self):
        for x in (torch.ones(2, device=D), torch.ones(0, device=D)):
            with self.assertRaisesRegex(RuntimeError, "is ambiguous"):
                torch._assert_async(x)

    def test_launch_blocking(self):
        """The operator itself raises, small or large, on each stream."""
        done = python(BLOCKING, NETCL_LAUNCH_BLOCKING="1")
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])


BLOCKING = """
import torch
D = "netcl"
w = torch.ones(5, device=D)
large = torch.zeros(4_000_000, dtype=torch.long, device=D)
large[-1] = 9
good, bad = torch.tensor([3], device=D), torch.tensor([9], device=D)
torch.netcl.synchronize()
with torch.netcl.stream(torch.netcl.Stream()):
    w.gather(0, good)
for index in (bad, large, bad):
    for stream in (torch.netcl.default_stream(), torch.netcl.Stream()):
        with torch.netcl.stream(stream):
            try:
                w.gather(0, index)
            except IndexError as e:
                assert "gather" in str(e), e
            else:
                raise SystemExit("nothing was raised")
            w.gather(0, good)
torch.netcl.synchronize()
"""


if __name__ == "__main__":
    run_tests()
