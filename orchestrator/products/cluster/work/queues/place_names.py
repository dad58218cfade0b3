"""The name of the queue of a place: short, since tables and indexes may be named after it."""

import re
from hashlib import blake2b


def queue_name(place: str) -> str:
    """Return the name of the queue of a place: readable if the place is, else a digest."""
    if re.fullmatch(r"[a-z0-9_.-]{1,40}", place):
        return f"orchestrator_{place}"
    return f"orchestrator#{blake2b(place.encode(), digest_size=16).hexdigest()}"
