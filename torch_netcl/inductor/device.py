"""What Inductor's wrapper code says about devices."""

from __future__ import annotations

from torch._inductor.codegen.common import DeviceOpOverrides


class OpenCLDeviceOps(DeviceOpOverrides):
    """Python statements about the current device and stream."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"def {name}(index):\n    return torch.netcl.current_stream(index).native_handle\n"

    def set_device(self, device_idx: int) -> str:
        return f"torch.netcl.set_device({device_idx})"

    def synchronize(self) -> str:
        return "torch.netcl.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.netcl.device({device_idx})"

    def current_stream(self) -> str:
        return "torch.netcl.current_stream()"
