"""A delay line between two bridges, for kernels without netem: `delay.py DEVICE@BRIDGE DEVICE@BRIDGE SECONDS`.

Makes two TAP devices, each a port of its bridge, and passes every frame from one to the other after the time given.
Prints `ready`; runs until it is ended, which removes the devices. Frames come in up to 64 KiB (segmentation offload),
so that few system calls are enough; the last millisecond is waited for awake.
"""

from __future__ import annotations

import collections
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

_TUNSETIFF, _TUNSETOFFLOAD, _TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8  # linux/if_tun.h
_TAP_NO_INFO_VNET_HEADER = 0x0002 | 0x1000 | 0x4000  # IFF_TAP | IFF_NO_PI | IFF_VNET_HDR
_CHECKSUM_TSO4_TSO6 = 0x01 | 0x02 | 0x04
_VNET_HEADER_BYTES = 10
FRAME_BYTES = 70_000
FRAMES_AT_ONCE = 64
AWAKE_S = 0.0015
"""poll counts in milliseconds, so the rest of a wait is spun."""
IDLE_MS = 1000


def tap(name: str) -> int:
    """File descriptor of a new TAP device."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP_NO_INFO_VNET_HEADER))
    fcntl.ioctl(device, _TUNSETVNETHDRSZ, struct.pack("i", _VNET_HEADER_BYTES))
    fcntl.ioctl(device, _TUNSETOFFLOAD, _CHECKSUM_TSO4_TSO6)
    return device


def relay(ends: tuple[int, int], delay_s: float) -> None:
    """Passes frames on for ever."""
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    waiting: dict[int, collections.deque[tuple[float, bytes]]] = {end: collections.deque() for end in ends}
    poll = select.poll()
    for end in ends:
        poll.register(end, select.POLLIN)
    while True:
        due = min((queue[0][0] for queue in waiting.values() if queue), default=None)
        left_s = None if due is None else due - time.monotonic()
        if left_s is None:
            ready = poll.poll(IDLE_MS)
        else:
            ready = poll.poll(0 if left_s < AWAKE_S else int((left_s - AWAKE_S) * 1e3) + 1)
        for end, _ in ready:
            _take_in(end, waiting[end], delay_s)
        now = time.monotonic()
        for end, queue in waiting.items():
            while queue and queue[0][0] <= now:
                _pass_on(other[end], queue.popleft()[1])


def _take_in(end: int, queue: collections.deque[tuple[float, bytes]], delay_s: float) -> None:
    for _ in range(FRAMES_AT_ONCE):
        try:
            frame = os.read(end, FRAME_BYTES)
        except BlockingIOError:
            return
        queue.append((time.monotonic() + delay_s, frame))


def _pass_on(end: int, frame: bytes) -> None:
    try:
        os.write(end, frame)
    except OSError:
        return  # a full queue drops, as a switch does


def main() -> None:
    ends = []
    for argument in sys.argv[1:3]:
        device, _, bridge = argument.partition("@")
        ends.append(tap(device))
        subprocess.run(["ip", "link", "set", device, "master", bridge, "up"], check=True)
    print("ready", flush=True)
    relay((ends[0], ends[1]), float(sys.argv[3]))


if __name__ == "__main__":
    main()
