"""Questions about an address: its host, and whether that is this machine."""

from ipaddress import ip_address
from typing import Final

import httpx2

OPENAI_HOST: Final = "api.openai.com"


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


def is_openai(url: str) -> bool:
    """Return whether a server is OpenAI's own."""
    host = host_of(url)
    # Each region has a host of its own, such as eu.api.openai.com.
    return host == OPENAI_HOST or host.endswith(f".{OPENAI_HOST}")
