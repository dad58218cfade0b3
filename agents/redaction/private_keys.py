"""Private keys whose beginning was cut off: lines of base64 before the last line of a key."""

import string
from collections.abc import Iterator
from typing import Final

from orchestrator.agents.redaction.named_values import REDACTED, Replacement, Signs
from orchestrator.lazy_pattern import lazy_pattern

PEM: Final = r"(?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_PEM_END: Final = lazy_pattern(rf"-----END {PEM}")
MAX_PEM_LINE: Final = 75
"""With its line end. OpenSSL and PGP write 64 letters a line, OpenSSH 70; mails have 76."""
# With the line end, which may be escaped as in JSON.
_PEM_LINE: Final = lazy_pattern(
    r"(?:(?<=\\[nr])|(?<![A-Za-z0-9+/=\\]))(?P<letters>[A-Za-z0-9+/=]+)(?:\s|\\+[nr])+\Z"
)
_SHORTEST_PEM_LINE: Final = 16
"""The letters of a line, except for the last line."""
IN_BASE64: Final = f"{string.ascii_letters}{string.digits}+/="


def start_of_key_lines(text: str, end: int, first: int = 0) -> int:
    """Return the offset, from `first`, of the lines before `end` that may be of a private key."""
    begin = end
    letters, length = _last_pem_line(text[max(first, end - MAX_PEM_LINE) : end])
    # The last line may be short.
    if letters < _SHORTEST_PEM_LINE:
        begin -= length
        letters, length = _last_pem_line(text[max(first, begin - MAX_PEM_LINE) : begin])
    last = begin
    # Line by line from the end, in linear time. The end of a longer line is of no key.
    while letters >= _SHORTEST_PEM_LINE and length < MAX_PEM_LINE:
        begin -= length
        letters, length = _last_pem_line(text[max(first, begin - MAX_PEM_LINE) : begin])
    return begin if begin < last else end


def _last_pem_line(text: str) -> tuple[int, int]:
    """Return how many letters the last line of a text has, and its length with the line end."""
    if "\\" in text:
        found = _PEM_LINE.search(text)
        return (0, 0) if found is None else (len(found["letters"]), len(found[0]))
    # Most texts have no escaped line ends, and this is many times as fast.
    line = text.rstrip()
    before = line.rstrip(IN_BASE64)
    if len(line) == len(text) or len(before) == len(line):
        return 0, 0
    return len(line) - len(before), len(text) - len(before)


def ends_of_private_keys(
    text: str, _low: str, _signs: Signs, begin: int = 0
) -> Iterator[Replacement]:
    """Yield the private keys whose beginning was cut off, if they end after an offset."""
    if "-----END " not in text:
        return
    done = 0
    for end in _PEM_END.finditer(text):
        start = start_of_key_lines(text, end.start(), done)
        if start < end.start():
            done = end.end()
            if done > begin:
                yield start, done, REDACTED
