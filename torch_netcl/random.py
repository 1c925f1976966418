"""Random numbers: the default Philox generator of each device. Names and meanings are those of ``torch.cuda``."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .device import DeviceLike, device_count, device_index

__all__ = [
    "default_generator",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def default_generator(device: DeviceLike = None) -> torch.Generator:
    """The generator that operators on a device use if none is given.

    ``torch.netcl.default_generators`` holds those of all devices.
    """
    return torch.ops.netcl.default_generator(device_index(device))


def get_rng_state(device: DeviceLike = "netcl") -> torch.Tensor:
    """The state of a device's generator: a CPU tensor of 16 bytes that holds seed and offset."""
    return default_generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "netcl") -> None:
    """Sets a state from :func:`get_rng_state`. Raises for other tensors."""
    default_generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of all devices."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seeds the current device."""
    default_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds all devices, without starting the drivers."""
    torch.ops.netcl.manual_seed_all(torch.Generator().manual_seed(int(seed)))


def seed() -> None:
    """Seeds the current device with a random number."""
    default_generator().seed()


def seed_all() -> None:
    """Seeds all devices with one random number."""
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return default_generator().initial_seed()
