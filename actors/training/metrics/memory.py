"""Memory of a rank: its accelerator's, or without one the process's."""

from __future__ import annotations

import resource
import sys

import torch


def peak_bytes(device: torch.device) -> int:
    """Most bytes that tensors held on the accelerator since the program began; on a CPU the most that the process had
    resident, libraries included."""
    if device.type != "cpu":
        return int(torch.accelerator.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def device_name(device: torch.device) -> str | None:
    """The accelerator's name as its driver gives it; None for a CPU."""
    if device.type == "cpu":
        return None
    module = torch.get_device_module(device)
    return str(module.get_device_name(device)) if hasattr(module, "get_device_name") else None
