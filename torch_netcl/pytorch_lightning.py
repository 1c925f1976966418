"""Lightning on netcl, for the package named pytorch_lightning.

::

    from torch_netcl.pytorch_lightning import netcl_strategy
    trainer = pytorch_lightning.Trainer(strategy=netcl_strategy())
"""

from ._lightning import define

__all__ = ["AmpCallback", "NetclAccelerator", "netcl_strategy"]

NetclAccelerator, netcl_strategy, AmpCallback = define("pytorch_lightning", __name__)
