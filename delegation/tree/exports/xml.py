"""What XML lets pass."""

import re
from typing import Final

FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ESCAPES: Final = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        # Readers make blanks of these, or of the first the last, unless they are escaped.
        "\r": "&#13;",
        "\n": "&#10;",
        "\t": "&#9;",
    }
)


def escaped(words: str) -> str:
    """Return words for an element or an attribute; what XML cannot say at all is replaced."""
    return FORBIDDEN.sub("\ufffd", words).translate(ESCAPES)
