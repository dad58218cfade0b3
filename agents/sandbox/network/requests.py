"""The value `NetworkRequest`: a request of a command to the network."""

import attrs


@attrs.frozen(kw_only=True)
class NetworkRequest:
    """A request of a command, when it is over."""

    target: str
    """The name of the host, and the port: `pypi.org:443`."""
    allowed: bool
    sent: int = 0
    """How many bytes the host was sent."""
    received: int = 0
    """How many bytes came back."""
