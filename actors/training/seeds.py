"""Random numbers as functions of names: what is drawn depends on the seed and on what it is for, never on the plan."""

from __future__ import annotations

import hashlib

import torch


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the thing named; sha256, so that equal names give equal seeds on every machine and version."""
    text = ":".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator for the thing named. Always CPU: the device generators draw other numbers from the same seed."""
    return torch.Generator("cpu").manual_seed(derive(seed, *names))


def seed_step(seed: int, step: int, replica: int, stage: int, device: torch.device) -> None:
    """Seeds torch for one step: the generators of the host and of `device`.

    The generator's state at a step is then a function of (seed, step, replica, stage), so a resume needs no stored
    state to be exact. Ranks of one tp group share it: whatever they draw for replicated activations must agree.
    """
    value = derive(seed, "step", step, replica, stage)
    # Not `torch.manual_seed`: on a host without CUDA it queues a call for later, every time, with a stack trace.
    torch.default_generator.manual_seed(value)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(value)
