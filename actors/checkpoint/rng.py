"""One rank's random-number generators as bytes: torch (CPU and accelerator), Python and NumPy."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import numpy as np
import torch


def _accelerator_module() -> Any:
    """The module of the current accelerator, None on a CPU (torch.accelerator raises there)."""
    if not torch.accelerator.is_available():
        return None
    return torch.get_device_module(torch.accelerator.current_accelerator())


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(state.cpu().numpy().tobytes()).decode()


def _decode(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


def capture() -> bytes:
    """The state of every generator of this process, as JSON."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    module = _accelerator_module()
    state = {
        "torch": _encode(torch.get_rng_state()),
        "accelerator": None if module is None else _encode(module.get_rng_state()),
        "python": [version, list(words), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
    }
    return json.dumps(state).encode()


def restore(content: bytes) -> None:
    """Sets every generator to what `capture` saw. An accelerator's state is dropped where there is none."""
    state = json.loads(content)
    torch.set_rng_state(_decode(state["torch"]))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    module = _accelerator_module()
    if module is not None and state["accelerator"] is not None:
        module.set_rng_state(_decode(state["accelerator"]))
