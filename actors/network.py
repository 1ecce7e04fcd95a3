"""Network interfaces by address. Gloo and NCCL are told the interface: left to guess, gloo may take 127.0.0.1."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct

_SIOCGIFADDR = 0x8915  # linux/sockios.h


def interface_of(address: str) -> str | None:
    """Name of the interface with the IPv4 `address`; `lo` for a loopback one, None when there is none (IPv6 too)."""
    if ipaddress.ip_address(address).is_loopback:
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # no IPv4 address
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
