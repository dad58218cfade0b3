"""Escapes of text for XML."""

import re
from typing import Final

from orchestrator.delegation.tree.safe_text import OBEYED_OR_UNSEEN

FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ESCAPES: Final = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        # Readers turn these into blanks, or a carriage return into a line end.
        "\r": "&#13;",
        "\n": "&#10;",
        "\t": "&#9;",
    }
)


def escaped(words: str) -> str:
    """Return a text for an element or an attribute; characters that XML forbids are replaced."""
    text = FORBIDDEN.sub("\ufffd", words).translate(ESCAPES)
    return OBEYED_OR_UNSEEN.sub(lambda found: f"&#{ord(found[0])};", text)
