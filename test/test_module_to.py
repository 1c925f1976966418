"""Modules keep their parameters' identity when they move between devices."""

import copy

import torch
from torch import nn
from torch.testing._internal.common_utils import TestCase, run_tests


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x))


class TestModuleTo(TestCase):
    def test_tied_weights_stay_tied(self):
        model = Tied()
        before = model.head.weight
        for device in ("netcl", "cpu", "netcl"):
            model.to(device)
            self.assertEqual(model.head.weight.device.type, device)
            self.assertIs(model.head.weight, before)
            self.assertIs(model.embedding.weight, before)
        self.assertEqual(len(list(model.parameters())), 1)
        clone = copy.deepcopy(model)
        self.assertIs(clone.head.weight, clone.embedding.weight)

    def test_optimizer_made_before(self):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        model.to("netcl")
        before = model.weight.detach().cpu()
        model(torch.ones(1, 3, device="netcl")).sum().backward()
        optimizer.step()
        self.assertEqual(model.weight.detach().cpu(), before - 1)

    def test_gradients_move_along(self):
        model = nn.Linear(3, 2)
        model(torch.ones(1, 3)).sum().backward()
        model.to("netcl")
        self.assertEqual(model.weight.grad.device.type, "netcl")
        self.assertEqual(model.weight.grad.cpu(), torch.ones(2, 3))
        model.to(torch.float64)
        self.assertEqual(model.weight.grad.dtype, torch.float64)

    def test_set_data(self):
        p = nn.Parameter(torch.ones(3))
        p.data = torch.arange(4.0).to("netcl")
        self.assertEqual(p.device.type, "netcl")
        self.assertTrue(p.requires_grad)
        (p * p).sum().backward()
        self.assertEqual(p.grad.cpu(), 2 * torch.arange(4.0))
        with torch.inference_mode():
            self.assertTrue(torch._has_compatible_shallow_copy_type(p, torch.ones(1)))

    def test_sparse_is_still_refused(self):
        sparse = torch.eye(3).to_sparse()
        self.assertFalse(torch._has_compatible_shallow_copy_type(torch.ones(3, device="netcl"), sparse))


if __name__ == "__main__":
    run_tests()
