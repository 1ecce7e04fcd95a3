"""What joins accelerators at a tier: the class of the link and its numbers, where they are known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """The path between two accelerators that share a domain of a tier and none of a nearer tier."""

    kind: str | None = None
    """Class of the link: `nvlink4`, `ib-ndr`; None when unknown."""
    bandwidth: float | None = None
    """Bytes per second that one accelerator can send over it, in one direction; None when unknown."""
    latency_s: float | None = None
    """Of a small message, one way; None when unknown."""
    uplink: float | None = None
    """Bytes per second, one direction, that all accelerators of one domain of the next nearer tier together can send
    up into this tier; None: unknown, taken as wide enough for all of them."""
    measured: bool = False
    """`bandwidth` is what programs got; otherwise it is what the link can carry at most."""
