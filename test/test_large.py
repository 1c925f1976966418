"""Tensors of more than 2^31 elements, and more memory than one buffer of the device may have.

The large tensors take 7 GiB and minutes, so only NETCL_TEST_FULL=1 tests them.
"""

import os
import unittest

import torch
from common import no_fallback
from torch.testing._internal.common_utils import TestCase, run_tests

D = torch.device("netcl", 0)
FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
N = 2**31 + 64
LIMIT = torch.netcl.get_device_properties().max_mem_alloc_size


@unittest.skipIf(not FULL, "takes 7 GiB; NETCL_TEST_FULL=1 runs it")
@unittest.skipIf(LIMIT < N, f"a buffer of this device has at most {LIMIT} bytes")
class TestLarge(TestCase):
    def setUp(self):
        super().setUp()
        torch.netcl.empty_cache()
        self.x = torch.zeros(N, dtype=torch.uint8, device=D)
        self.x[-1], self.x[2**31 - 1] = 7, 5

    def tearDown(self):
        del self.x
        torch.netcl.empty_cache()
        super().tearDown()

    def test_element_wise(self):
        x = self.x
        with no_fallback():
            self.assertEqual(x[-3:].tolist(), [0, 0, 7])
            x.add_(1)
            self.assertEqual(x[2**31 - 2 : 2**31 + 1].tolist(), [1, 6, 1])
            y = torch.where(x > 6, x * 2, x)
            self.assertEqual(y[[0, 2**31 - 1, -2, -1]].tolist(), [1, 6, 1, 16])
            self.assertEqual(x.view(64, -1).t().contiguous()[-1, -1].item(), 8)
            self.assertEqual((x[1:] + x[:-1])[-1].item(), 9)
            self.assertEqual(x.cpu()[-1].item(), 8)
            x.random_(0, 2)
            # A sum of n bits is off by 5 deviations of sqrt(n) / 2 once in a million.
            self.assertEqual(x.sum().item(), N / 2, rtol=0, atol=2.5 * N**0.5)
            self.assertEqual(x[2**31 :].sum().item(), 32, rtol=0, atol=20)

    def test_views(self):
        x = self.x
        with no_fallback():
            odd = x[1::2]
            odd.add_(1)
            self.assertEqual(x[[0, 1, 2**31 - 2, 2**31 - 1, -2, -1]].tolist(), [0, 1, 0, 6, 0, 8])
            far = x.as_strided((3, 2), (2**30, 1), 31)
            far.mul_(2)
            self.assertEqual(far.tolist(), [[2, 0], [2, 0], [2, 0]])
            tall = x.view(-1, 2).t()
            self.assertEqual((tall[1] != 0).sum().item(), N // 2)
            tall[0].copy_(tall[1])
            self.assertEqual(x[-2:].tolist(), [8, 8])
            x.view(2, -1)[1].fill_(3)
            self.assertEqual(x[[N // 2 - 1, N // 2, -1]].tolist(), [2, 3, 3])
            self.assertEqual(torch.cat([odd[-2:], x[-2:]]).tolist(), [3, 3, 3, 3])

    def test_reductions_and_scans(self):
        x = self.x
        with no_fallback():
            self.assertEqual(x.sum().item(), 12)
            self.assertEqual(x.argmax().item(), N - 1)
            self.assertEqual([v.item() for v in x.max(0)], [7, N - 1])
            self.assertEqual(x.view(64, -1).sum(1).tolist()[-2:], [0, 12])
            self.assertEqual(x.view(-1, 64).amax(0).tolist()[-1], 7)
            self.assertEqual((x != 0).nonzero().tolist(), [[2**31 - 1], [N - 1]])
            self.assertEqual(x.cumsum(0, dtype=torch.uint8)[[2**31 - 2, -2, -1]].tolist(), [0, 5, 12])
            self.assertEqual(torch.bincount(x[-100:]).tolist()[7], 1)

    def test_indexing(self):
        x = self.x
        i = torch.tensor([0, 2**31 - 1, N - 1, -1], device=D)
        with no_fallback():
            self.assertEqual(x[i].tolist(), [0, 5, 7, 7])
            self.assertEqual(x.index_select(0, i[:3]).tolist(), [0, 5, 7])
            self.assertEqual(x.gather(0, i[:3]).tolist(), [0, 5, 7])
            self.assertEqual(x.take(i).tolist(), [0, 5, 7, 7])
            self.assertEqual(x.masked_select(x > 0).tolist(), [5, 7])
            x[i[1:3] - 1] = 9
            x.index_add_(0, i[:3], torch.ones(3, dtype=torch.uint8, device=D))
            x.scatter_(0, i[:1] + 3, torch.full((1,), 4, dtype=torch.uint8, device=D))
            self.assertEqual(x[[0, 3, 2**31 - 2, 2**31 - 1, -2, -1]].tolist(), [1, 4, 9, 6, 9, 8])
            self.assertEqual(torch.cat([x[:5], x[2**30 :]])[-2:].tolist(), [9, 8])
            self.assertEqual(x.flip(0)[:2].tolist(), [8, 9])
            self.assertEqual(x.roll(2)[:2].tolist(), [9, 8])
            x[i[:1] + N]
            with self.assertRaisesRegex(IndexError, "out of bounds"):
                torch.netcl.synchronize()


class TestTooLarge(TestCase):
    def test_one_buffer(self):
        with self.assertRaisesRegex(torch.OutOfMemoryError, "CL_DEVICE_MAX_MEM_ALLOC_SIZE"):
            torch.empty(LIMIT + 4096, dtype=torch.uint8, device=D)
        with self.assertRaises(torch.OutOfMemoryError):
            torch.empty(2**62, dtype=torch.uint8, device=D)
        x = torch.ones(1, device=D)
        with self.assertRaises(torch.OutOfMemoryError):
            x.expand(LIMIT).contiguous()
        self.assertEqual(x.item(), 1)


if __name__ == "__main__":
    run_tests()
