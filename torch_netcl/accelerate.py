"""fp16 for Hugging Face accelerate, whose ``Accelerator(mixed_precision="fp16")`` refuses devices not on its list.

::

    accelerator = torch_netcl.accelerate.use_fp16(Accelerator())

and, before ``trainer.train()``, ``use_fp16(trainer.accelerator)`` of a ``transformers.Trainer``.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["use_fp16"]


def use_fp16(accelerator: Any, **scaler_options: Any) -> Any:
    """Give `accelerator` what ``mixed_precision="fp16"`` gives it on CUDA, and return it.

    That is autocast in float16, and a ``torch.amp.GradScaler("netcl", **scaler_options)`` that ``backward``, ``step``
    and ``clip_grad_norm_`` use. Call it before ``prepare``. RuntimeError if the device has no fp16, or if something was
    prepared already; ValueError if accelerate uses another device.
    """
    device = accelerator.device
    if device.type != "netcl":
        raise ValueError(f"accelerate uses {device}, not netcl: set ACCELERATE_TORCH_DEVICE=netcl before its import")
    if torch.float16 not in torch.netcl.amp.autocast_dtypes(device):
        raise RuntimeError(
            f"{device} has no cl_khr_fp16: use Accelerator(mixed_precision='bf16'), or NETCL_FP16=storage"
        )
    if accelerator._models or accelerator._optimizers:
        raise RuntimeError("use_fp16 comes before accelerator.prepare(...), which wraps the model for its precision")
    accelerator.state._mixed_precision = "fp16"
    accelerator.native_amp = True
    accelerator.scaler = torch.amp.GradScaler("netcl", **scaler_options)
    return accelerator
