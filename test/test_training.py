"""Ten training steps of whole models agree with the CPU; GradScaler skips, halves and doubles.

How far two correct float32 runs may lie apart cannot be read off a table: every step amplifies the rounding
of the one before. So the tolerance is measured. The same run in float64 on the CPU is taken for the truth;
how far the CPU's own float32 run strays from it (some 1e-7 in the losses, 5e-6 in the weights) is the size
of the rounding noise in *this* model, and the device may stray ``SLACK`` times as far. Two things make its
noise differ from the CPU's: the order of its sums (one running float32 sum of n terms has about sqrt(n /
16) times the error of the CPU's 16 partial sums; n is at most 4608, in ResNet's last convolution), and
chance. For autocast the truth is the CPU's float32 run, and the yardstick the CPU's autocast run in the
same dtype.

AdamW runs with eps = 1e-3. With the usual 1e-8 its first step is lr * sign(gradient), and the jump at zero
turns a relative rounding error of 1e-7 into a relative weight difference of about sqrt(1e-7): nothing small
would be left to see.

ReLU jumps too, and ResNet cannot do without. A normalised input lies within its rounding error, 3e-7, of
zero with probability p = 2 * 3e-7 * 0.4; the gate is then open on one device and shut on the other, which
changes the gradient of a layer of N units by 1 / sqrt(N) of its norm. N units with probability p each make
an expected squared change of p, whatever N is; so 17 layers of them make sqrt(17 p) = 2e-3 of the gradient,
and ``RELU_JUMP`` allows four times that.
"""

import copy
import functools
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from common import allow_fp16
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    subtest,
)

# Behind the tests' folder, which has a module `common` too.
sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
from models import GPT, GPTConfig, LSTMClassifier, ResNet18  # noqa: E402

DEVICE = "netcl"
STEPS = 10
EPS = 1e-3
SLACK = 16  # sqrt(4608 / 16) = 17: the worst running sum of the three models
FLOOR = 8 * torch.finfo(torch.float32).eps  # if the CPU happens to be exact: a few roundings
RELU_JUMP = {"resnet18": 4 * math.sqrt(17 * 2 * 3e-7 * 0.4)}
OPTIMIZERS = {"foreach": {}, "single": {"foreach": False, "fused": False}}


def image_batch(generator, size):
    x = torch.randn(8, 3, size, size, generator=generator)
    return x, torch.randint(10, (8,), generator=generator)


def token_batch(generator):
    tokens = torch.randint(100, (8, 12), generator=generator)
    return tokens, tokens[:, -3] % 5


def text_batch(generator, length):
    text = torch.randint(97, 123, (4, length + 1), generator=generator)
    return text[:, :-1], text[:, 1:]


# name: (model, batch, learning rate)
MODELS = {
    "resnet18": (ResNet18, functools.partial(image_batch, size=64), 1e-4),
    "resnet_small": (functools.partial(ResNet18, width=16), functools.partial(image_batch, size=32), 1e-4),
    "lstm": (LSTMClassifier, token_batch, 1e-2),
    "gpt": (GPT, functools.partial(text_batch, length=128), 1e-3),
    "gpt_small": (
        lambda: GPT(GPTConfig(layers=2, width=64, context=32)),
        functools.partial(text_batch, length=32),
        1e-3,
    ),
}


def loss_of(model, x, y):
    # On the CPU, autocast computes cross_entropy in float32; elsewhere its log_softmax keeps the scores' dtype.
    scores = model(x).to(torch.promote_types(next(model.parameters()).dtype, torch.float32))
    return F.cross_entropy(scores.flatten(0, -2), y.flatten())


def train(name, device, dtype=torch.float32, amp_dtype=None, **options):
    """Losses and final weights (both float64, on the CPU) of STEPS steps."""
    make_model, make_batch, lr = MODELS[name]
    torch.manual_seed(1)
    model = make_model().to(device, dtype).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, eps=EPS, **options)
    # The usual initial scale, 2**16, may skip the first steps in float16; here every step should count.
    scaler = torch.amp.GradScaler(device, init_scale=256.0, enabled=amp_dtype is not None)
    generator = torch.Generator().manual_seed(2)
    losses = []
    x, y = make_batch(generator)
    x = x.to(device, dtype if x.is_floating_point() else None)
    for _ in range(STEPS):
        with torch.autocast(device, dtype=amp_dtype, enabled=amp_dtype is not None):
            loss = loss_of(model, x, y.to(device))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    return torch.stack(losses).cpu().double(), weights.cpu().double()


@functools.cache
def reference(name, dtype=torch.float32, amp_dtype=None):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # beside other test processes, threads that wait for each other spin
    try:
        # oneDNN refuses the LSTM in float16 on most CPUs.
        with torch.backends.mkldnn.flags(enabled=amp_dtype is None or name != "lstm"):
            return train(name, "cpu", dtype, amp_dtype)
    finally:
        torch.set_num_threads(threads)


@functools.cache
def first_weights(name):
    torch.manual_seed(1)
    return torch.nn.utils.parameters_to_vector(MODELS[name][0]().parameters()).detach().double()


class TestTraining(TestCase):
    def setUp(self):
        super().setUp()
        torch.netcl.reset_cpu_fallback_ops()

    def assert_no_fallback(self):
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    def assert_losses_close(self, actual, expected, truth, slack, weight_noise=0.0):
        # While the weights moved, the loss changed by `change`. If they end a fraction `weight_noise` of that distance
        # away, the loss may differ by the same fraction of the change.
        change = (truth[0] - truth).abs().max().item()
        noise = (expected - truth).abs().max().item() + weight_noise * change
        tolerance = slack * noise + FLOOR * truth.abs().max().item()
        difference = (actual - expected).abs().max().item()
        self.assertLessEqual(difference, tolerance, f"{actual=}\n{expected=}\n{truth=}")

    @parametrize("optimizer", ["foreach", "single"])
    @parametrize("name", ["resnet18", "lstm", "gpt"])
    def test_float32(self, name, optimizer):
        losses, weights = train(name, DEVICE, **OPTIMIZERS[optimizer])
        self.assert_no_fallback()
        true_losses, true_weights = reference(name, torch.float64)
        cpu_losses, cpu_weights = reference(name)
        self.assertLess(cpu_losses[-1], cpu_losses[0])

        # The root mean square over all weights, relative to the distance that training moved them.
        moved = (true_weights - first_weights(name)).norm()
        noise = ((cpu_weights - true_weights).norm() / moved).item()
        difference = ((weights - cpu_weights).norm() / moved).item()
        self.assertLessEqual(difference, SLACK * noise + RELU_JUMP.get(name, 0) + FLOOR)
        self.assert_losses_close(losses, cpu_losses, true_losses, SLACK, noise)

    @parametrize("amp_dtype", [subtest(torch.bfloat16, name="bf16"), subtest(torch.float16, name="fp16")])
    @parametrize("name", ["resnet_small", "lstm", "gpt_small"])
    def test_autocast(self, name, amp_dtype):
        if amp_dtype == torch.float16:
            allow_fp16(self)
        losses, _ = train(name, DEVICE, amp_dtype=amp_dtype)
        self.assert_no_fallback()
        # Here the CPU sums in float32 as well, so only chance and the two lists of policies differ.
        self.assert_losses_close(losses, reference(name, amp_dtype=amp_dtype)[0], reference(name)[0], 4)


class TestGradScaler(TestCase):
    def setUp(self):
        super().setUp()
        torch.netcl.reset_cpu_fallback_ops()

    @parametrize("optimizer", ["foreach", "single"])
    @parametrize("name", ["resnet_small", "lstm", "gpt_small"])
    def test_inf_skips_the_step(self, name, optimizer):
        make_model, make_batch, lr = MODELS[name]
        torch.manual_seed(1)
        model = make_model().to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, **OPTIMIZERS[optimizer])
        scaler = torch.amp.GradScaler("netcl", init_scale=1024.0)
        generator = torch.Generator().manual_seed(2)

        def step(poison):
            x, y = (t.to(DEVICE) for t in make_batch(generator))
            optimizer.zero_grad()
            with torch.autocast("netcl", dtype=torch.bfloat16):
                loss = loss_of(model, x, y)
            scaler.scale(loss).backward()
            if poison:
                list(model.parameters())[-1].grad.view(-1)[-1] = math.inf
            scaler.step(optimizer)
            scaler.update()
            return loss.item()

        def state():
            state = copy.deepcopy(optimizer.state_dict()["state"])
            return [p.detach().cpu() for p in model.parameters()], state

        self.assertTrue(math.isfinite(step(poison=False)))
        weights, optimizer_state = state()
        step(poison=True)
        self.assertEqual(scaler.get_scale(), 512.0)
        after, optimizer_state_after = state()
        self.assertEqual(after, weights, rtol=0, atol=0)
        self.assertEqual(optimizer_state_after, optimizer_state, rtol=0, atol=0)
        self.assertTrue(math.isfinite(step(poison=False)))
        self.assertEqual(scaler.get_scale(), 512.0)
        after, _ = state()
        self.assertTrue(all(torch.isfinite(w).all() for w in after))
        self.assertTrue(all(not torch.equal(a, b) for a, b in zip(after, weights, strict=True)))
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    def test_scale_doubles(self):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("netcl", init_scale=16.0, growth_interval=100)
        x, y = torch.randn(8, 4).to(DEVICE), torch.randn(8, 1).to(DEVICE)
        scales = {}
        for step in range(1, 201):
            optimizer.zero_grad()
            with torch.autocast("netcl", dtype=torch.bfloat16):
                loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if step in (99, 100, 199, 200):
                scales[step] = scaler.get_scale()
        self.assertEqual(scales, {99: 16.0, 100: 32.0, 199: 32.0, 200: 64.0})
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})


instantiate_parametrized_tests(TestTraining)
instantiate_parametrized_tests(TestGradScaler)

if __name__ == "__main__":
    run_tests()
