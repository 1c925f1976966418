"""mode="reduce-overhead": recorded calls of compiled graphs against calls without it."""

import copy
import gc
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE
from torch import nn

from torch_netcl.inductor import recording

CALLS = 5  # the first two run as always; a replay follows


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


@pytest.fixture
def replays(monkeypatch):
    """The number of replays so far, as a list's length."""
    done = []
    replay = recording._Recording.replay

    def counted(self, tensors):
        result = replay(self, tensors)
        if result is not None:
            done.append(self)
        return result

    monkeypatch.setattr(recording._Recording, "replay", counted)
    return done


def randn(*sizes, dtype=torch.float32):
    return torch.randn(*sizes).to(DEVICE, dtype)


def compiled(function):
    return torch.compile(function, mode="reduce-overhead", fullgraph=True, dynamic=False)


INFERENCE = {
    "chain": (lambda a, b: (a * 2 + b).sin() * b, [(40, 30), (40, 30)]),
    "several results": (lambda a, b: (a + b, (a * b).sum(0), a.t(), b), [(40, 30), (40, 30)]),
    "reduction": (lambda a: (a.softmax(-1), a.argmax(1), a.std()), [(40, 30)]),
    "product": (lambda a, b: (a @ b).relu() + 1, [(40, 30), (30, 20)]),
    "convolution": (lambda a, b: F.conv2d(a, b, padding=1).relu(), [(2, 3, 9, 9), (4, 3, 3, 3)]),
    "attention": (lambda a: F.scaled_dot_product_attention(a, a, a), [(2, 2, 16, 8)]),
    "sort": (lambda a: a.sort(-1), [(8, 50)]),
    "cat": (lambda a, b: torch.cat([a, b.flip(1), a * 2]), [(40, 30), (20, 30)]),
    "index": (lambda a, b: a[(b[:, 0] > 0).long()] + b, [(2, 30), (40, 30)]),
    "scatter": (lambda a, b: a.index_add(0, (b[:, 0] > 0).long(), b), [(2, 30), (40, 30)]),
    "view of a result": (lambda a: (lambda c: (c[1:], c[:, 2], c))(a * 2), [(40, 30)]),
    "view of an input": (lambda a: (a[1:], a + 1), [(40, 30)]),
    "empty": (lambda a: (a[:0] * 2, a.sum()), [(40, 30)]),
    "constant": (lambda a: a + torch.arange(30, device=a.device), [(40, 30)]),
}


@pytest.mark.parametrize("name", INFERENCE)
def test_inference(name, replays):
    function, shapes = INFERENCE[name]
    run = compiled(function)
    kept = []
    with torch.no_grad():
        for _ in range(CALLS):
            args = [randn(*shape) for shape in shapes]
            kept.append((run(*args), function(*args)))
    assert len(replays) == CALLS - 2 + 1
    for result, expected in kept:  # no call changes what earlier ones returned
        torch.testing.assert_close(result, expected)


def test_inputs_that_are_written(replays):
    def function(a, b):
        a.mul_(2).add_(b)
        return a.sum()

    run = compiled(function)
    for _ in range(CALLS):
        a, b = randn(20, 10), randn(20, 10)
        c = a.clone()
        torch.testing.assert_close(run(a, b), function(c, b))
        torch.testing.assert_close(a, c)
    assert replays


def models():
    yield "MLP", nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 4)), (8, 16)
    yield "CNN", nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)), (4, 3, 10, 10)
    yield "encoder", nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True), (2, 6, 16)
    yield "norms", nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.RMSNorm(16)), (8, 16)


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("name, model, shape", list(models()), ids=lambda v: v if isinstance(v, str) else "")
def test_training(name, model, shape, autocast, replays):
    """Losses, gradients, buffers and random numbers are those of the default mode, to the last bit."""
    state = {k: v.clone() for k, v in model.state_dict().items()}
    data = torch.randn(6, *shape, generator=torch.Generator().manual_seed(0))

    def trained(mode):
        torch._dynamo.reset()
        model.to(DEVICE).load_state_dict(state)
        model.zero_grad()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        run = torch.compile(model, mode=mode)
        torch.netcl.manual_seed(7)
        found = []
        for batch in data:
            optimizer.zero_grad()
            with torch.autocast("netcl", torch.bfloat16, enabled=autocast):
                loss = run(batch.to(DEVICE)).float().square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found, [p.detach().cpu() for p in model.parameters()], [b.cpu() for b in model.buffers()]

    expected = trained("default")
    assert not replays
    for a, b in zip(trained("reduce-overhead"), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert len(replays) >= 2 * (len(data) - 2)


def optimizers():
    yield "SGD", torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "foreach": True}
    yield "AdamW", torch.optim.AdamW, {"foreach": True, "capturable": True}
    yield "AdamW_fused", torch.optim.AdamW, {"fused": True}  # torch.compile runs it as it is


@pytest.mark.parametrize("name, kind, how", list(optimizers()), ids=lambda v: v if isinstance(v, str) else "")
def test_optimizers(name, kind, how, replays):
    """Compiled steps, with a rate that changes, gradients that are None, and states that move."""
    start = [*(torch.randn(40, 30) for _ in range(4)), torch.randn(30), torch.randn(1), torch.randn(4000)]
    grads = torch.randn(12, 7, 4000)

    def trained(mode):
        torch._dynamo.reset()
        params = [nn.Parameter(p.to(DEVICE)) for p in start]
        optimizer = kind(params, lr=torch.tensor(0.01, device=DEVICE), **how)
        step = torch.compile(optimizer.step, mode=mode) if mode else optimizer.step
        for i, batch in enumerate(grads):
            for p, grad in zip(params, batch, strict=True):
                p.grad = grad[: p.numel()].view(p.shape).to(DEVICE)
            if i in (5, 6):
                params[2].grad = None
            if i == 7:
                optimizer.param_groups[0]["lr"].fill_(0.02)
            if i == 9:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            step()
        states = [t.cpu() for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)]
        return [p.detach().cpu() for p in params] + states

    expected = trained("default")
    assert not replays
    torch.testing.assert_close(trained("reduce-overhead"), expected, rtol=0, atol=0)
    assert bool(replays) != ("fused" in how)
    torch.testing.assert_close(trained(None), expected)


def test_lists_of_tensors(replays):
    """Operators over lists find their tensors by tables of addresses, which replays write anew."""

    def call(args):
        a, b = args[: len(args) // 2], args[len(args) // 2 :]
        torch._foreach_add_(a, b, alpha=2)
        made = torch._foreach_mul(a, torch._foreach_exp(b))
        return (*made, *torch._foreach_norm(made))

    run = recording.Recorded(call)
    for _ in range(CALLS):
        a, b = ([randn(n) for n in (5, 3000, 1, 70)] for _ in range(2))
        expected = [t.clone() for t in a]
        results = call([*expected, *b])
        torch.testing.assert_close(run([*a, *b]), results)
        torch.testing.assert_close(a, expected)
    assert len(replays) == CALLS - 1


def test_lists_in_more_buffers_than_a_kernel_takes(replays):
    run = recording.Recorded(lambda args: tuple(torch._foreach_add(args, 1)))
    for i in range(2 * CALLS):
        length = 3 << 20 if i == CALLS else 64  # of the storage, which has a buffer of its own if it is large
        tensors = [randn(64) for _ in range(10)]
        for at, t in enumerate(tensors):
            tensors[at] = torch.empty(length, device=DEVICE)[:64].copy_(t)
        torch.testing.assert_close(run(list(tensors)), tuple(t + 1 for t in tensors))
    assert len(replays) == 2 * CALLS - 2


def test_grad_scaler(replays):
    """A step that is left out, since a gradient is not finite, changes nothing, and the next one is right."""
    data = torch.randn(8, 16, 8)
    data[4] = float("inf")

    def trained(mode):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
        scaler = torch.amp.GradScaler("netcl", init_scale=1024.0, growth_interval=2)
        run = torch.compile(model, mode=mode) if mode else model
        if mode:
            optimizer.step = torch.compile(optimizer.step, mode=mode)
        found = []
        for batch in data:
            optimizer.zero_grad()
            scaler.scale(run(batch.to(DEVICE)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            found.append((scaler.get_scale(), *(p.detach().cpu() for p in model.parameters())))
        assert found[4][0] < found[3][0]
        torch.testing.assert_close(found[4][1:], found[3][1:], rtol=0, atol=0)
        return found

    expected = trained("default")
    torch.testing.assert_close(trained("reduce-overhead"), expected, rtol=0, atol=0)
    assert replays
    torch.testing.assert_close(trained(None), expected)


def test_unscaling(replays):
    def call(args):
        found = torch.zeros((), device=DEVICE)
        torch._amp_foreach_non_finite_check_and_unscale_(args[1:], found, args[0])
        return (found, *args[1:])

    run = recording.Recorded(call)
    for i in range(CALLS):
        scale = torch.full((), 0.5, device=DEVICE)
        grads = [randn(20, 10), randn(3000), randn(1, dtype=torch.bfloat16)]
        if i == 3:
            grads[1][77] = float("nan")
        expected = [g * 0.5 for g in grads]
        found, *results = run([scale, *grads])
        torch.testing.assert_close(found.item(), float(i == 3))
        torch.testing.assert_close(results, expected, equal_nan=True)
    assert len(replays) == CALLS - 1


def test_two_forward_calls_before_backward(replays):
    """As in gradient accumulation; CUDA's graphs keep one call's activations only."""
    layer = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).to(DEVICE)
    run = torch.compile(layer, mode="reduce-overhead")
    for _ in range(CALLS):
        a, b = randn(4, 8), randn(4, 8)
        grads = []
        for f in (run, layer):
            first, second = f(a).square().sum(), f(b).sin().sum()
            grads.append(torch.autograd.grad(second, list(layer.parameters())))
            grads.append(torch.autograd.grad(first, list(layer.parameters())))
        torch.testing.assert_close(grads[:2], grads[2:])
    assert len(replays) > CALLS


def test_other_inputs(replays):
    """Inputs of another form, or that share memory otherwise, run as without the mode."""
    run = recording.Recorded(lambda args: (args[0] * 2 + args[1],))

    def check(a, b):
        torch.testing.assert_close(run([a, b])[0], a * 2 + b)

    for _ in range(3):
        check(randn(64), randn(64))
    assert len(replays) == 2  # the call that is recorded, and the next one
    same = randn(64)
    wide = randn(200)
    for a, b in [(same, same), (wide[1:65], wide[65:129]), (randn(64), randn(1)), (randn(128)[::2], randn(64))]:
        check(a, b)
        check(b, a)
    assert len(replays) == 2
    with pytest.raises(RuntimeError, match="The size of tensor"):
        run([randn(64), randn(63)])
    check(randn(256)[128:192], randn(64))  # a view that begins at a multiple of 64 bytes fits
    assert len(replays) == 3


def test_numbers(replays):
    run = torch.compile(lambda a, n: a * n + n, mode="reduce-overhead", dynamic=True)
    for n in [2, 3, 2, 3, 2, 3, 5] + list(range(20, 60)):
        for size in (16, 24):
            a = randn(size)
            torch.testing.assert_close(run(a, n), a * n + n)
    assert replays


@pytest.mark.parametrize("name", ["item", "host", "cpu"])
def test_what_cannot_be_recorded(name, replays):
    host = torch.randn(10)
    function = {
        "item": lambda a: a * torch.nonzero(a).shape[0],
        "host": lambda a: a + host.to(a.device),
        "cpu": lambda a: (a * 2, host * 2),
    }[name]
    run = torch.compile(function, mode="reduce-overhead")
    for _ in range(CALLS):
        a = randn(10)
        torch.testing.assert_close(run(a), function(a))


def test_streams_within_a_call(replays):
    """What a call does on another stream would run at once, and again if the call then cannot be recorded."""
    stream = torch.Stream(device="netcl:0")

    def call(args):
        (a,) = args
        with stream:
            a.add_(1)
        return (a * 2,)

    run = recording.Recorded(call)
    a = torch.zeros(100, device=DEVICE)
    torch.netcl.synchronize()
    for i in range(1, CALLS):
        run([a])
        torch.netcl.synchronize()
        assert a[0].item() == i
    assert not replays


def test_released_memory(replays):
    """Inputs' memory may go back to the driver, and its addresses to other buffers."""
    run = compiled(lambda a: (a * 2).sum() + a.amax())
    for i in range(CALLS):
        a = torch.randint(-4, 5, (1 << 20,)).to(DEVICE, torch.float32)  # their sums are exact in any order
        torch.testing.assert_close(run(a), (a * 2).sum() + a.amax())
        del a
        if i > 1:
            gc.collect()
            torch.netcl.empty_cache()
    gc.collect()
    before = torch.netcl.memory_allocated()
    for _ in range(20):
        run(randn(1 << 20))
    gc.collect()
    assert torch.netcl.memory_allocated() <= before and replays


def test_streams(replays):
    run = compiled(lambda a: (a @ a).relu() @ a)
    a = randn(300, 300)
    expected = (a @ a).relu() @ a
    streams = [torch.Stream(device="netcl:0") for _ in range(3)]
    torch.netcl.synchronize()
    results = []
    for _ in range(6):
        for stream in streams:
            with stream:
                results.append(run(a))
    torch.netcl.synchronize()
    for result in results:
        torch.testing.assert_close(result, expected)
    assert replays


def test_threads(replays):
    """What other threads do meanwhile is not recorded."""
    stop, sums = threading.Event(), []

    def others():
        x = torch.ones(100, device=DEVICE)
        n = 0
        while not stop.is_set():
            x.add_(1)
            n += 1
        sums.append((x.amin().item(), x.amax().item(), n + 1))

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for i in range(10):
            torch._dynamo.reset()
            run = compiled(lambda a, i=i: a * 2 + i)
            for _ in range(3):
                a = randn(50)
                torch.testing.assert_close(run(a), a * 2 + i)
    finally:
        stop.set()
        thread.join()
    assert sums[0][0] == sums[0][1] == sums[0][2]
    assert replays


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="this torch has no torch.accelerator.Graph")
def test_within_a_graph(replays):
    run = compiled(lambda a: (a * 2).tanh() + 1)
    a = randn(100)
    run(a)
    graph = torch.accelerator.Graph()
    count = len(replays)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.no_grad(), torch.Stream(device="netcl:0"), graph:
            result = run(a)
    assert len(replays) == count  # the graph keeps its commands itself
    for value in (0.5, 0.25):
        a.fill_(value)
        graph.replay()
        torch.testing.assert_close(result.cpu(), (a.cpu() * 2).tanh() + 1)
        torch.testing.assert_close(run(a).cpu(), result.cpu())
    assert len(replays) > count  # recorded after the graph


def test_errors_on_the_device(replays):
    run = compiled(lambda a, i: a[i] * 2)
    a, good, bad = randn(8), torch.arange(4, device=DEVICE), torch.tensor([1, 9, 2, 3], device=DEVICE)
    for _ in range(3):
        torch.testing.assert_close(run(a, good), a[good] * 2)
    assert replays
    with pytest.raises(IndexError, match="out of bounds"):
        run(a, bad).cpu()
    torch.testing.assert_close(run(a, good), a[good] * 2)
