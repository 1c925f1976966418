"""float32 master weights for models whose parameters are float16 or bfloat16."""

from collections.abc import Iterable

import torch


def master_param(param: torch.Tensor) -> torch.Tensor:
    """A float32 copy of a half or bfloat16 parameter, for an optimizer; a float32 parameter is returned itself.

    The copy refers to the parameter as ``_model_param``, and keeps its ``requires_grad`` and ``_frozen``.
    """
    if param.dtype not in (torch.float16, torch.bfloat16):
        param._model_param = param
        return param
    master = torch.nn.Parameter(param.detach().float(), requires_grad=param.requires_grad)
    master._model_param = param
    if hasattr(param, "_frozen"):
        master._frozen = param._frozen
    return master


class MasterParams:
    """The master weights of a model: the parameters for its optimizer, and the copies from and to the model.

    ::

        model.half()
        masters = MasterParams(model.parameters())
        optimizer = torch.optim.AdamW(masters)
        ...
        scaler.scale(loss).backward()
        masters.copy_gradients()  # model -> masters
        scaler.step(optimizer)
        scaler.update()
        masters.copy_weights()  # masters -> model
        masters.zero_grad()

    Each copy is one launch for all parameters, and stays on the device.
    """

    def __init__(self, params: Iterable[torch.Tensor]) -> None:
        self.model_params = list(params)
        self.masters = [master_param(p) for p in self.model_params]
        self._pairs = [(p, m) for p, m in zip(self.model_params, self.masters, strict=True) if p is not m]

    def __iter__(self):
        return iter(self.masters)

    def __len__(self) -> int:
        return len(self.masters)

    @torch.no_grad()
    def copy_gradients(self) -> None:
        """Copies each parameter's gradient to its master, in float32."""
        sources, targets = [], []
        for param, master in self._pairs:
            if param.grad is None:
                master.grad = None
                continue
            if master.grad is None:
                master.grad = torch.empty_like(master)
            sources.append(param.grad)
            targets.append(master.grad)
        if sources:
            torch._foreach_copy_(targets, sources)

    @torch.no_grad()
    def copy_weights(self) -> None:
        """Copies each master to its parameter, rounded to the parameter's dtype."""
        if self._pairs:
            torch._foreach_copy_([p for p, _ in self._pairs], [m for _, m in self._pairs])

    def zero_grad(self) -> None:
        """Deletes the gradients of the parameters and of the masters."""
        for tensor in (*self.model_params, *self.masters):
            tensor.grad = None
