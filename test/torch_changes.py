"""Prints what importing torch_netcl changes in PyTorch's modules: a line per attribute, for test_docs.py."""

import os
import sys
import types
import warnings

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import torch
import torch._dynamo.device_interface
import torch.distributed
import torch.nn.attention.flex_attention
import torch.nn.parallel
import torch.profiler
import torch.utils.data


def attributes():
    """The attributes of PyTorch's modules and of their classes, by name; lists by content."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] != "torch" or name == "torch.ops" or not isinstance(module, types.ModuleType):
            continue  # torch.ops finds operators when they are asked for
        for key, value in list(vars(module).items()):
            found[f"{name}.{key}"] = list(value) if isinstance(value, (list, set, tuple)) else value
            if isinstance(value, type) and value.__module__.split(".")[0] == "torch":
                if hasattr(value, "__members__"):
                    continue  # the enumerations of devices get a member, by torch's own function
                found.update({f"{value.__module__}.{value.__qualname__}.{k}": v for k, v in list(vars(value).items())})
    return found


# The functions by which PyTorch names a backend set attributes of its own.
warnings.simplefilter("ignore")
torch.utils.rename_privateuse1_backend("netcl")
before = attributes()
import torch_netcl  # noqa: E402, F401

after = attributes()
del before["torch.library._impls"], after["torch.library._impls"]  # its record of the kernels that are registered
modules = {name.rpartition(".")[0] for name in before}
for name, value in after.items():
    old = before.get(name)
    if name in before and value is not old and not (isinstance(old, list) and value == old):
        print("changed", name)
    elif name not in before and name.rpartition(".")[0] in modules and "netcl" not in name.lower():
        print("added", name)
for name in before:
    if name not in after:
        print("removed", name)
