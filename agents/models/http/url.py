"""Questions about an address: its host, and whether that is this machine."""

from ipaddress import ip_address

import httpx2


def host_of(url: str) -> str:
    """Return the host of an address, or an empty string if it has none."""
    try:
        return httpx2.URL(url).host
    except httpx2.InvalidURL:
        return ""


def is_on_loopback(url: str) -> bool:
    """Return whether an address is on this machine."""
    host = host_of(url)
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
