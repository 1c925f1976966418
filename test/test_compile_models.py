"""Whole models under torch.compile on netcl: the losses of some training steps, compared with eager mode's.

The models are those of test_models.py, small and without downloads. NETCL_TEST_FULL=1 tests all of them, also under
bfloat16 autocast.
"""

import copy
import os

import pytest
import torch
from common import DEVICE, to_device
from test_models import EVERY, build

FULL = os.environ.get("NETCL_TEST_FULL") == "1"
QUICK = ("llama", "unet")
STEPS = 3


def losses(model, inputs, compiled, dtype=None):
    """The losses of the first steps of AdamW."""
    model = copy.deepcopy(model).to(DEVICE)
    inputs = to_device(inputs, DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    forward = torch.compile(model) if compiled else model
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype, enabled=dtype is not None):
            loss = forward(**inputs)["loss"]
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found).cpu()


@pytest.mark.parametrize("dtype", [None, torch.bfloat16] if FULL else [None], ids=str)
@pytest.mark.parametrize("name", list(EVERY) if FULL else QUICK)
def test_losses_are_those_of_eager_mode(name, dtype):
    torch._dynamo.reset()
    model, inputs = build(name)
    eager = losses(model, inputs, False, dtype)
    compiled = losses(model, inputs, True, dtype)
    assert len(set(eager.tolist())) == STEPS  # it trains
    torch.testing.assert_close(compiled, eager, rtol=1e-5 if dtype is None else 5e-3, atol=1e-5)
