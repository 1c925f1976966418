"""A callback for ``transformers.Trainer`` that logs the loss scale and the skipped steps::

    from torch_netcl.transformers import AmpCallback

    trainer.add_callback(AmpCallback(trainer))
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback

__all__ = ["AmpCallback"]


class AmpCallback(TrainerCallback):
    """Logs ``amp_scale`` and ``amp_skipped``, the number of skipped steps so far, every ``logging_steps``.

    ``skips`` lists the steps whose gradients held an Inf or a NaN, each with its :class:`torch_netcl.amp.Blame`. It
    waits for the device once a step. Without a scaler (bf16, fp32) it logs nothing.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.skips: list[tuple[int, list[Any]]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Looks at the gradients."""
        if self.trainer.accelerator.scaler is not None and (found := torch.netcl.amp.blame(kwargs["model"])):
            self.skips.append((state.global_step, found))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Logs, when the Trainer does."""
        scaler = self.trainer.accelerator.scaler
        if scaler is not None and state.global_step % max(1, int(args.logging_steps)) == 0:
            self.trainer.log({"amp_scale": scaler.get_scale(), "amp_skipped": len(self.skips)})
