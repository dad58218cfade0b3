"""How many pieces a request may have: each takes its time in the event loop, short as it is."""

from typing import Final

MOST_MESSAGES: Final = 5_000
"""How many messages the conversation of a request may have."""
MOST_PIECES: Final = 1_000
"""How many tools, or files of one message, a request may have."""
