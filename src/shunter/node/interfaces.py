"""The addresses of this machine, and the names of the interfaces that have them. IPv4, without asking anybody."""

from __future__ import annotations

import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

_SIOCGIFADDR = 0x8915


def addresses():
    # type: () -> Dict[str, str]
    """Each interface that has an address, with its first one; loopback too."""
    found = {}  # type: Dict[str, str]
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for _, name in socket.if_nameindex():
                try:
                    answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                except OSError:
                    continue  # it has none
                found[name] = socket.inet_ntoa(answer[20:24])
    except (ImportError, OSError):
        pass
    return found


def of_address(address):
    # type: (str) -> str
    """The interface that has this address; empty when none of this machine has it."""
    return next((name for name, has in addresses().items() if has == address), "")
