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
# Batch, steps, inputs, units: on both sides of a vector and of all tiles of rows; with enough steps that packing pays,
# and with fewer.
SIZES = [(5, 4, 3, 7), (1, 5, 20, 16), (14, 4, 4, 33), (23, 4, 2, 68), (7, 1, 4, 33), (2, 2, 1, 1)]
# One rounding each of gates, state and saved gates, which the cell stores in the storage dtype: u = 2**-11 or 2**-8,
# and values are below 4; the CPU reference is computed in float64 from the same rounded inputs.
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
            # All outputs, then only the last: it then has the only gradient.
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


def run_layers(net, x, state, used):
    """The outputs of an nn.LSTM or nn.GRU, and the gradients for the (weighted) outputs `used` of (output, h_n, c_n).
    """
    lstm = isinstance(net, nn.LSTM)
    output, last = net(x, state if lstm or state is None else state[0])
    outputs = [output, *(last if lstm else [last])]
    weights = [torch.linspace(0.5, 1.5, t.numel()).view_as(t).to(x) for t in outputs]
    loss = sum((outputs[i] * weights[i]).sum() for i in used if i < len(outputs))
    leaves = [t for t in (x, *(state or ()), *net.parameters()) if t.requires_grad]
    return outputs, torch.autograd.grad(loss, leaves, allow_unused=True) if leaves else []


BOTH = parametrize("module", [nn.LSTM, nn.GRU], name_fn=lambda m: m.__name__)


def states_of(module, *shape):
    """Hidden states, and the LSTM's cell states."""
    return [torch.randn(shape) for _ in range(2 if module is nn.LSTM else 1)]


class TestWholeLayers(TestCase):
    """nn.LSTM and nn.GRU with one operator per layer."""

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        torch.netcl.reset_cpu_fallback_ops()

    def compare(self, net, x, state=None, used=(0, 1, 2), requires_grad=(True, True, True), tolerance=1e-5):
        """Compares net on netcl with a copy on the CPU, in float64 if the dtype is narrow."""
        wide = torch.float32 if x.dtype == torch.float32 else torch.float64
        results = []
        for device, dtype in (("netcl", x.dtype), ("cpu", wide)):
            model = copy.deepcopy(net).to(device, dtype)
            leaves = [t.clone().to(device, dtype) for t in (x, *(state or ()))]
            for leaf, wanted in zip(leaves, requires_grad, strict=False):
                leaf.requires_grad_(wanted)
            results.append(run_layers(model, leaves[0], tuple(leaves[1:]) if state else None, used))
        (outputs, grads), (expected, expected_grads) = results
        self.assertEqual(outputs, expected, rtol=tolerance, atol=tolerance, exact_dtype=x.dtype == torch.float32)
        self.assertEqual([t.dtype for t in outputs], [x.dtype] * len(outputs))
        for a, e in zip(grads, expected_grads, strict=True):
            # Sums of at most some hundred terms of the size of the largest.
            atol = 20 * tolerance * (1 if e is None or e.numel() == 0 else max(1, e.abs().max().item()))
            self.assertEqual(a, e, rtol=20 * tolerance, atol=atol, exact_dtype=x.dtype == torch.float32)
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    @BOTH
    @parametrize("bias", [True, False])
    @parametrize("batch_first", [True, False])
    @parametrize("bidirectional", [True, False])
    def test_layers(self, module, bidirectional, batch_first, bias):
        for n, steps, inputs, hidden in SIZES:
            net = module(inputs, hidden, 2, bias=bias, bidirectional=bidirectional, batch_first=batch_first)
            x = torch.randn((n, steps, inputs) if batch_first else (steps, n, inputs))
            states = states_of(module, 2 * (1 + bidirectional), n, hidden)
            self.compare(net, x, states)
            self.compare(net, x)

    @BOTH
    def test_narrow_dtypes(self, module):
        for dtype in (torch.float16, torch.bfloat16):
            for n, hidden in [(3, 18), (9, 37), (12, 64), (1, 5)]:
                net = module(5, hidden, bidirectional=True).to(dtype)
                state = [t.to(dtype) for t in states_of(module, 2, n, hidden)]
                self.compare(net, torch.randn(6, n, 5).to(dtype), state, tolerance=TOLERANCE[dtype])

    @BOTH
    def test_float64(self, module):
        if not torch.netcl.get_device_properties().has_fp64:
            self.skipTest("no fp64 on this device")
        for steps in (3, 5):
            net, x = module(5, 18, bidirectional=True).double(), torch.randn(steps, 7, 5, dtype=torch.float64)
            self.compare(net, x, tolerance=1e-14)

    @BOTH
    def test_which_gradients(self, module):
        # Each output alone (the others then have no gradient), and each input alone.
        state = states_of(module, 2, 3, 5)
        x = torch.randn(4, 3, 6)
        net = module(6, 5, 2)
        for used in ((0,), (1,), (2,), (1, 2))[: 4 if module is nn.LSTM else 2]:
            self.compare(net, x, state, used)
        for i in range(3):
            self.compare(net, x, state, requires_grad=[j == i for j in range(3)])
        net.requires_grad_(False)
        self.compare(net, x, state, requires_grad=(False, True, False))
        net.weight_hh_l1.requires_grad_()
        self.compare(net, x, state, requires_grad=(False, False, False))

    def test_one_state_for_both(self):
        h = torch.randn(1, 3, 5)
        grads = []
        net = nn.LSTM(4, 5)
        x = torch.randn(2, 3, 4)
        for device in ("netcl", "cpu"):
            model, state = copy.deepcopy(net).to(device), h.clone().to(device).requires_grad_()
            first = torch.autograd.grad(model(x.to(device), (state, state))[0].sin().sum(), state, create_graph=True)[0]
            grads.append((first, torch.autograd.grad(first.square().sum(), state)[0]))
        self.assertEqual(grads[0], grads[1], rtol=1e-4, atol=1e-5)

    @BOTH
    def test_no_graph(self, module):
        net = module(6, 40, 2, bidirectional=True)
        x = torch.randn(5, 3, 6)
        expected = net(x)
        actual_net = copy.deepcopy(net).to("netcl")
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                self.assertEqual(actual_net(x.to("netcl")), expected, rtol=1e-5, atol=1e-5)
        self.assertEqual(actual_net(x[:, 0].to("netcl")), net(x[:, 0]), rtol=1e-5, atol=1e-5)
        # More gates than are kept at a time without a graph.
        long = module(2, 300, bidirectional=True)
        x = torch.randn(9, 256, 2)
        with torch.no_grad():
            self.assertEqual(copy.deepcopy(long).to("netcl")(x.to("netcl")), long(x), rtol=1e-5, atol=1e-5)

    @BOTH
    def test_views(self, module):
        net = module(4, 5).to("netcl")
        x = torch.randn(3, 2, 8, device="netcl")
        h = torch.randn(1, 5, 2, device="netcl").transpose(1, 2)
        c = torch.randn(1, 2, 10, device="netcl")[..., ::2]
        state, dense = ((h, c), (h.contiguous(), c.contiguous())) if module is nn.LSTM else (h, h.contiguous())
        expected = net(x[..., ::2].contiguous(), dense)
        self.assertEqual(net(x[..., ::2], state), expected)
        self.assertEqual(net(torch._neg_view(-x[..., ::2]), state), expected)

    @BOTH
    def test_double_backward(self, module):
        x, net = torch.randn(3, 2, 4), module(4, 5, bidirectional=True)
        results = []
        for device in ("netcl", "cpu"):
            model, leaf = copy.deepcopy(net).to(device), x.clone().to(device).requires_grad_()
            grads = torch.autograd.grad(model(leaf)[0].square().sum(), [leaf, *model.parameters()], create_graph=True)
            sum(g.square().sum() for g in grads).backward()
            results.append([*grads, leaf.grad, *(p.grad for p in model.parameters())])
        for a, e in zip(*results, strict=True):
            self.assertEqual(a, e, rtol=1e-4, atol=1e-4 * max(1, e.abs().max().item()))

    @BOTH
    def test_transforms(self, module):
        """torch.func and batched gradients use ATen's own implementation, whose cells have no forward-mode derivative.
        """
        net, x = module(4, 5), torch.randn(3, 2, 4)
        results = []
        for device in ("netcl", "cpu"):
            model, value = copy.deepcopy(net).to(device), x.to(device)
            leaf = value.clone().requires_grad_()
            output = model(leaf)[0]
            batch = torch.eye(6, device=device).view(6, 3, 2, 1).expand(6, 3, 2, 5)
            results.append(
                [
                    torch.func.grad(lambda v, model=model: model(v)[0].sin().sum())(value),
                    torch.autograd.grad(output, leaf, batch, is_grads_batched=True)[0],
                ]
            )
        self.assertEqual(results[0], results[1], rtol=1e-4, atol=1e-5)
        model, value = copy.deepcopy(net).to("netcl"), x.to("netcl")
        with self.assertRaisesRegex(NotImplementedError, "forward AD"):
            torch.func.jvp(lambda v: model(v)[0], (value,), (value,))

    @BOTH
    def test_dropout(self, module):
        # The masks are the same for the same seed, and dropout applies only in training, between layers.
        net, x = module(4, 50, 2, dropout=0.5).to("netcl"), torch.randn(3, 2, 4, device="netcl", requires_grad=True)
        outputs = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            outputs.append(net(x)[0])
        self.assertEqual(outputs[0], outputs[1])
        self.assertNotEqual(outputs[0], outputs[2])
        net.eval()
        net.dropout = 0.0
        expected = net(x)[0]
        net.dropout = 0.5
        self.assertEqual(net(x)[0], expected)

    def test_projection(self):
        self.compare(nn.LSTM(4, 6, proj_size=3), torch.randn(3, 2, 4))

    def test_errors_are_aten_s(self):
        for change, message in {
            "device": "same device",
            "shape": "shapes cannot be multiplied",
            "steps": "sequence length to be larger than 0",
            "states": "two hidden states",
        }.items():
            net, x = nn.LSTM(4, 5).to("netcl"), torch.zeros(3, 2, 4, device="netcl")
            weights = list(net.parameters())
            state = [torch.zeros(1, 2, 5, device="netcl") for _ in range(2)]
            if change == "device":
                weights[1] = weights[1].detach().cpu()
            if change == "shape":
                x = torch.zeros(3, 2, 6, device="netcl")
            if change == "steps":
                x = x[:0]
            if change == "states":
                state = state[:1]
            with self.assertRaisesRegex(RuntimeError, message):
                torch.lstm(x, state, weights, True, 1, 0.0, True, False, False)

    @BOTH
    def test_empty_batch(self, module):
        net = module(4, 5)
        self.compare(net, torch.zeros(3, 0, 4))

    @BOTH
    def test_autocast_gradients(self, module):
        """Outputs have autocast's dtype, whatever the states' dtype; each gradient has the dtype of its tensor."""
        net = module(5, 7, 2, bidirectional=True)
        x, state = torch.randn(4, 2, 5), states_of(module, 4, 2, 7)
        expected = run_layers(net, x.requires_grad_(), state, (0, 1, 2))
        actual_net = copy.deepcopy(net).to("netcl")
        with torch.autocast("netcl", dtype=torch.bfloat16):
            leaf = x.detach().to("netcl").requires_grad_()
            outputs, grads = run_layers(actual_net, leaf, [t.to("netcl") for t in state], (0, 1, 2))
        self.assertEqual({t.dtype for t in outputs}, {torch.bfloat16})
        self.assertEqual({t.dtype for t in grads}, {torch.float32})
        for a, e in zip([*outputs, *grads], [*expected[0], *expected[1]], strict=True):
            limit = 8 * 2**-8 * max(1, e.abs().max().item())
            self.assertEqual(a.float(), e, rtol=0, atol=limit)

    @BOTH
    def test_launches(self, module):
        """A time step takes a product and a cell in each pass; the other launches do not depend on the number of
        steps."""
        net = module(16, 32).to("netcl")
        counts = []
        for steps in (8, 24):
            x = torch.randn(steps, 20, 16, device="netcl")
            before = torch.netcl.launch_count()
            net(x)[0].sum().backward()
            counts.append(torch.netcl.launch_count() - before)
        # On a CPU the product may be packed first, which makes two launches.
        self.assertLessEqual((counts[1] - counts[0]) / 16, 6)


instantiate_parametrized_tests(TestRnn)
instantiate_parametrized_tests(TestWholeLayers)

if __name__ == "__main__":
    run_tests()
