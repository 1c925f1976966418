"""The fused LSTM and GRU cells, alone and inside nn.LSTM, nn.GRU and nn.LSTMCell."""

import copy

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    subtest,
)

DTYPES = [subtest(d, name=str(d).split(".")[1]) for d in (torch.float32, torch.float16, torch.bfloat16)]
# One rounding each of gates, state and saved gates, which the cell keeps in the storage dtype: u = 2**-11 or
# 2**-8, values below 4 in size; the CPU reference is computed in float64 from the same rounded inputs.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 8 * 2**-11, torch.bfloat16: 8 * 2**-8}


def lstm_reference(ig, hg, cx, ib=None, hb=None):
    gates = ig + hg if ib is None else ig + hg + ib + hb
    i, f, g, o = gates.chunk(4, 1)
    c = f.sigmoid() * cx + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_reference(ig, hg, hx, ib=None, hb=None):
    if ib is not None:
        ig, hg = ig + ib, hg + hb
    (ir, iz, i_n), (hr, hz, h_n) = ig.chunk(3, 1), hg.chunk(3, 1)
    z = (iz + hz).sigmoid()
    n = (i_n + (ir + hr).sigmoid() * h_n).tanh()
    return (n + z * (hx - n),)


CELLS = {
    "lstm": (4, lstm_reference, torch.ops.aten._thnn_fused_lstm_cell),
    "gru": (3, gru_reference, torch.ops.aten._thnn_fused_gru_cell),
}


class TestRnn(TestCase):
    def setUp(self):
        super().setUp()
        torch.netcl.reset_cpu_fallback_ops()

    @parametrize("dtype", DTYPES)
    @parametrize("bias", [True, False])
    @parametrize("name", ["lstm", "gru"])
    def test_cell(self, name, bias, dtype):
        count, reference, cell = CELLS[name]
        for n, hidden in [(3, 37), (1, 16), (2, 300), (0, 8)]:
            torch.manual_seed(n)
            inputs = [torch.randn(n, count * hidden).to(dtype) for _ in range(2)]
            inputs.append(torch.randn(n, hidden).to(dtype))
            inputs += [torch.randn(count * hidden).to(dtype) for _ in range(2)] if bias else []
            expected_in = [t.double().requires_grad_() for t in inputs]
            actual_in = [t.to("netcl").requires_grad_() for t in inputs]
            expected, actual = reference(*expected_in), cell(*actual_in)[: len(reference(*expected_in))]
            tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype], "exact_dtype": False}
            self.assertEqual(actual, expected, **tolerance)
            # All outputs, then the last alone: its gradient is then the only one there is.
            for used in (slice(None), slice(-1, None)):
                grads = [torch.randn(n, hidden).to(dtype) for _ in expected[used]]
                torch.autograd.backward(expected[used], [g.double() for g in grads], retain_graph=True)
                torch.autograd.backward(actual[used], [g.to("netcl") for g in grads], retain_graph=True)
            for a, e in zip(actual_in, expected_in, strict=True):
                # Bias gradients are sums over the batch.
                self.assertEqual(a.grad, e.grad, **{**tolerance, "atol": 4 * max(n, 1) * tolerance["atol"]})
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    @parametrize("name", ["lstm", "gru"])
    def test_nan_and_inf(self, name):
        count, reference, cell = CELLS[name]
        gates = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e4, -1e4, 0.0])
        ig = torch.cartesian_prod(*[gates] * count).t().reshape(1, -1)
        hg, state = torch.zeros_like(ig), torch.full((1, ig.shape[1] // count), 0.5)
        expected = reference(ig, hg, state)
        actual = cell(ig.to("netcl"), hg.to("netcl"), state.to("netcl"))[: len(expected)]
        self.assertEqual(actual, expected, rtol=1e-6, atol=1e-6)

    def test_non_contiguous(self):
        for count, reference, cell in CELLS.values():
            ig = torch.randn(count * 20, 3).t()
            hg = torch.randn(3, 2 * count * 20)[:, ::2]
            state = torch.randn(5, 20)[2:]
            expected = reference(ig, hg, state)
            actual = cell(
                ig.to("netcl"),
                torch.randn(3, 2 * count * 20).to("netcl")[:, ::2].copy_(hg),
                torch.randn(5, 20).to("netcl")[2:].copy_(state),
            )[: len(expected)]
            self.assertEqual(actual, expected, rtol=1e-6, atol=1e-6)

    def test_errors(self):
        x = torch.zeros(2, 12, device="netcl")
        with self.assertRaisesRegex(RuntimeError, "expected gates"):
            torch.ops.aten._thnn_fused_lstm_cell(x, x, torch.zeros(2, 4, device="netcl"))
        with self.assertRaisesRegex(RuntimeError, "expected one dtype"):
            torch.ops.aten._thnn_fused_gru_cell(x, x, torch.zeros(2, 4, device="netcl").half())

    @parametrize("module", [nn.LSTM, nn.GRU, nn.RNN], name_fn=lambda m: m.__name__)
    def test_layers(self, module):
        torch.manual_seed(0)
        expected_net = module(5, 7, num_layers=2, bidirectional=True)
        net = copy.deepcopy(expected_net).to("netcl")
        x = torch.randn(6, 3, 5)
        actual_x, expected_x = x.to("netcl").requires_grad_(), x.clone().requires_grad_()
        for pack in (False, True):
            outputs = []
            for model, value in ((net, actual_x), (expected_net, expected_x)):
                if pack:
                    value = pack_padded_sequence(value, torch.tensor([6, 4, 1]))
                output, state = model(value)
                outputs.append((pad_packed_sequence(output)[0] if pack else output, state))
            # float32 sums of at most 14 products of numbers below 1, twelve steps deep.
            tolerance = {"rtol": 1e-5, "atol": 1e-5}
            self.assertEqual(outputs[0], outputs[1], **tolerance)
            outputs[0][0].square().sum().backward()
            outputs[1][0].square().sum().backward()
        self.assertEqual(actual_x.grad, expected_x.grad, **tolerance)
        for a, e in zip(net.parameters(), expected_net.parameters(), strict=True):
            self.assertEqual(a.grad, e.grad, rtol=1e-4, atol=1e-4)
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    def test_autocast(self):
        net = nn.LSTM(5, 7).to("netcl")
        with torch.autocast("netcl", dtype=torch.bfloat16):
            output, (h, c) = net(torch.randn(4, 2, 5, device="netcl"))
        self.assertEqual({output.dtype, h.dtype, c.dtype}, {torch.bfloat16})
        output.float().sum().backward()
        self.assertTrue(all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters()))


instantiate_parametrized_tests(TestRnn)

if __name__ == "__main__":
    run_tests()
