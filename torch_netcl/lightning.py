"""Lightning on netcl: a strategy for ``lightning.Trainer`` that sets accelerator and precision.

::

    from torch_netcl.lightning import netcl_strategy
    trainer = lightning.Trainer(strategy=netcl_strategy())

Needs the package lightning. torch_netcl.pytorch_lightning is the same for the package pytorch_lightning.
"""

from ._lightning import define

__all__ = ["AmpCallback", "NetclAccelerator", "netcl_strategy"]

NetclAccelerator, netcl_strategy, AmpCallback = define("lightning.pytorch", __name__)
