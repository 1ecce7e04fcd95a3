"""The device of a rank, the same code with and without an accelerator.

`torch.accelerator` answers `is_available` and `device_count` everywhere and raises on every other call when there is
no accelerator, so those calls are made here alone.
"""

from __future__ import annotations

import torch


def bind(local_index: int = 0) -> torch.device:
    """Binds this process to its accelerator and returns it; `cpu` when there is none.

    `local_index` counts among the accelerators the process sees.
    """
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    kind = torch.accelerator.current_accelerator()
    assert kind is not None
    count = torch.accelerator.device_count()
    if not 0 <= local_index < count:
        raise ValueError(f"accelerator index {local_index}: this process sees {count} of type {kind.type}")
    torch.accelerator.set_device_index(local_index)
    return torch.device(kind.type, local_index)


def backend(device: torch.device) -> str:
    """Process-group backend: gloo for CPU tensors always (checkpoints use it), the device's own beside it."""
    if device.type == "cpu":
        return "gloo"
    return f"cpu:gloo,{device.type}:{torch.distributed.get_default_backend_for_device(device.type)}"


def synchronize(device: torch.device) -> None:
    """Waits until everything queued on `device` is done; nothing on a CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def out_of_memory(error: BaseException) -> str | None:
    """What a failed allocation said, first line, when that is what `error` is or was caused by; None otherwise.

    Accelerators raise `torch.OutOfMemoryError`, the CPU allocator a plain RuntimeError.
    """
    seen: BaseException | None = error
    while seen is not None:
        plain = type(seen) is RuntimeError and ("can't allocate memory" in str(seen))
        if plain or isinstance(seen, torch.OutOfMemoryError | MemoryError):
            return (str(seen).strip().splitlines() or ["an allocation failed"])[0]
        seen = seen.__cause__ or seen.__context__
    return None
