"""What users put around torch.compile: wrappers for several processes, optimizers, assertions, profiler, logs, several
devices, and kernels in their shape for GPUs."""


import pytest
import torch
import torch.distributed as dist
from common import DEVICE
from processes import python
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def child(code, **environment):
    """What another process prints."""
    done = python(code, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def alone():
    """A process group of one process."""
    dist.init_process_group("netcl_gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded(model):
    mesh = init_device_mesh(DEVICE, (1,))
    for part in (model[0], model):
        fully_shard(part, mesh=mesh)
    return model


@pytest.mark.parametrize("wrap", [nn.parallel.DistributedDataParallel, sharded], ids=["DDP", "fully_shard"])
def test_wrapped_models(alone, wrap):
    x, losses = torch.randn(8, 16, device=DEVICE), []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = wrap(nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4)).to(DEVICE))
        forward = torch.compile(model) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses.append([])
        for _ in range(2):
            loss = forward(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[-1].append(loss.item())
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["foreach", "fused"])
def test_optimizer(how):
    def run(compiled):
        torch.manual_seed(0)
        parameters = [torch.randn(7, n, device=DEVICE, requires_grad=True) for n in (1, 40)]
        optimizer = torch.optim.AdamW(parameters, lr=torch.tensor(0.01, device=DEVICE), **{how: True}, capturable=True)
        step = torch.compile(optimizer.step) if compiled else optimizer.step
        for _ in range(3):
            for p in parameters:
                p.grad = p.detach().sin()
            step()
        return [p.detach() for p in parameters]

    torch.testing.assert_close(run(True), run(False), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["Adam", "NAdam", "RAdam", "Adamax", "ASGD"])
def test_optimizer_whose_steps_are_on_the_host(kind):
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        parameters = [torch.randn(n).to(device).requires_grad_() for n in (7, 7, 40)]
        optimizer = getattr(torch.optim, kind)(parameters, lr=0.01)
        step = optimizer.step if device == "cpu" else torch.compile(optimizer.step)
        for _ in range(3):
            for p in parameters:
                p.grad = p.detach().sin()
            step()
        results.append([p.detach().cpu() for p in parameters])
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_assertions():
    @torch.compile
    def checked(x):
        torch._assert_async((x > 0).all(), "x must be positive")
        return x.sqrt() + 1

    x = torch.ones(40, device=DEVICE)
    torch.testing.assert_close(checked(x), x + 1)
    with pytest.raises(RuntimeError, match="x must be positive"):
        checked(-x).cpu()


def several(a, b):
    return (a * 3 + 1).sin(), (b * 2).cos().sum(0), a.softmax(-1)


@pytest.mark.parametrize("option", ["combo_kernels", "emulate_precision_casts", "implicit_fallbacks",
                                    "triton.descriptive_names"])  # fmt: skip
def test_options(option):
    a, b = torch.randn(5, 7, device=DEVICE), torch.randn(9, 4, device=DEVICE)
    with torch._inductor.config.patch({option: not torch._inductor.config.get_config_copy()[option]}):
        torch.testing.assert_close(torch.compile(several)(a, b), several(a, b), rtol=1e-5, atol=1e-5)


def test_casts_that_round_as_eager_ones():
    def f(a, b):
        return (a * 1.7 + 1.3) * b

    a, b = (torch.randn(999, device=DEVICE, dtype=torch.float16) for _ in range(2))
    with torch._inductor.config.patch(emulate_precision_casts=True):
        torch.testing.assert_close(torch.compile(f)(a, b), f(a, b), rtol=0, atol=0)


def test_lite_mode():
    a, b = torch.randn(5, 7, device=DEVICE), torch.randn(9, 4, device=DEVICE)
    torch.testing.assert_close(torch.compile(several, mode="lite")(a, b), several(a, b), rtol=1e-5, atol=1e-5)


def test_sizes_that_data_decides():
    def f(a, n):
        size = n.item()
        torch._check(0 <= size <= 9)
        return torch.zeros(size, device=DEVICE) + a.sum().item()

    a, n = torch.randn(5, device=DEVICE), torch.tensor(4)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        torch.testing.assert_close(torch.compile(f, fullgraph=True)(a, n), f(a, n))


def test_streams():
    stream = torch.Stream(device=DEVICE)

    def f(a):
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            b = a * 2 + 1
        torch.accelerator.current_stream().wait_stream(stream)
        return b.sin()

    a = torch.randn(5000, device=DEVICE)
    torch.testing.assert_close(torch.compile(f)(a), f(a))


def test_a_graph_break_inside_autocast():
    def f(x):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            y = x @ x
            torch._dynamo.graph_break()
            return y @ x, y.exp()

    x = torch.randn(16, 16, device=DEVICE)
    got = torch.compile(f)(x)
    assert [t.dtype for t in got] == [torch.bfloat16, torch.float32]
    torch.testing.assert_close(got, f(x))


def test_explain():
    def f(x):
        x = x.sin() + 1
        torch._dynamo.graph_break()
        return x * 2

    explained = torch._dynamo.explain(f)(torch.ones(3, device=DEVICE))
    assert (explained.graph_count, explained.graph_break_count) == (2, 1)


def test_profiler_names_the_fused_operators():
    f = torch.compile(lambda x: (x * 2).tanh() + x)
    x = torch.ones(99, device=DEVICE)
    f(x)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as p:
        f(x)
        torch.netcl.synchronize()
    assert any("compiled_fused_add_mul_tanh" in e.name for e in p.events())


TWO = """
import torch
f = torch.compile(lambda a: a.softmax(-1) * 2)
for i in range(torch.netcl.device_count()):
    a = torch.randn(9, 33, device=f"netcl:{i}")
    b = f(a)
    assert b.device == a.device
    torch.testing.assert_close(b, a.softmax(-1) * 2)
print("devices", torch.netcl.device_count())
"""


def test_several_devices_and_the_log(tmp_path):
    kernels = tmp_path / "kernels"
    kernels.mkdir(mode=0o700)
    said = child(TWO, NETCL_SUBDEVICES="2", NETCL_LOG="compile,launch", NETCL_CACHE_DIR=str(kernels))
    assert "devices 2" in said or "NETCL_SUBDEVICES=2 is ignored" in said
    assert "compiled <source> compiled_fused__softmax_mul" in said
    assert said.count("compiled_fused__softmax_mul") >= 3


GPU = """
import torch, torch.nn.functional as F
assert torch.netcl.get_device_properties().device_class == "gpu"
def f(x, i):
    y = F.layer_norm(x * 2, [100])
    return y.softmax(1), y.sum(0), y.argmax(1), x[i].flip(1), (x.t() + 1).amax(1), F.gelu(x).var()
x, i = torch.randn(37, 100, device="netcl", requires_grad=True), torch.randint(37, (50,), device="netcl")
a, b = torch.compile(f, fullgraph=True)(x, i), f(x, i)
torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
for left, right in zip(a, b):
    if left.is_floating_point():
        g, h = (torch.autograd.grad(t.square().sum(), x, retain_graph=True)[0] for t in (left, right))
        torch.testing.assert_close(g, h, rtol=1e-4, atol=1e-4)
print("right")
"""


def test_the_shape_for_gpus():
    assert "right" in child(GPU, NETCL_DEVICE_CLASS="gpu")
