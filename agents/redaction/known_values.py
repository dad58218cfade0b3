"""The forms of a known secret value in a text."""

import base64
import html
import json
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from orchestrator.agents.redaction.named_values import MIN_SECRET_LENGTH

# Of English, and of ids, the rarest first. All else is taken for frequent.
_RARE: Final = "qzjxkvwypgbmfculhdrsnioate"
_NOT_RARE: Final = 1_000


def forms_of(value: str) -> set[str]:
    """Return the forms of a value: verbatim, escaped, as hex and base64, and reversed.

    A form that a person writes by hand, such as base64 of base64, is not among them.
    """
    raw = value.encode("utf-8", "surrogateescape")
    as_json = json.dumps(value, ensure_ascii=False)[1:-1]
    forms = {value, as_json, json.dumps(value)[1:-1], json.dumps(as_json)[1:-1]}
    forms |= {quote(raw, safe=safe) for safe in ("", "/")}
    forms |= {html.escape(value), html.escape(value, quote=False)}
    if len(raw) >= MIN_SECRET_LENGTH:
        # A suffix, such as a new line, changes the last letters only.
        for part in (raw, raw[: len(raw) // 3 * 3]):
            forms.add(base64.b64encode(part).decode().rstrip("="))
            forms.add(base64.urlsafe_b64encode(part).decode().rstrip("="))
        for before in (1, 2):
            inner = _inner_base64(raw, before)
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
        forms |= {raw.hex(), raw.hex().upper(), value[::-1]}
        # `base64` and mails break lines after 76 letters, `openssl` after 64.
        whole = base64.b64encode(raw).decode().rstrip("=")
        for width in (64, 76):
            lines = [whole[at : at + width] for at in range(0, len(whole), width)]
            forms |= {end.join(lines) for end in ("\n", "\r\n", "\\n", "\\r\\n")}
    return forms


def _inner_base64(raw: bytes, before: int) -> str:
    """Return the part that is common to the base64 of all texts with a value after a number of
    bytes.

    Each letter stands for six bits: the bits at the ends also depend on the neighbouring bytes.
    """
    whole = base64.b64encode(bytes(before) + raw).decode()
    return whole[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]


def by_rare_letter(marks: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return marks by the letter of each that the fewest texts contain."""
    groups: dict[str, list[str]] = {}
    for mark in sorted(marks):
        rare = min(mark, key=lambda letter: _RARE.find(letter) % _NOT_RARE, default="")
        groups.setdefault(rare, []).append(mark)
    return tuple((letter, tuple(group)) for letter, group in groups.items())


def mark_of(form: str) -> str:
    """Return the longest part of a text that JSON does not escape, in lower case."""
    parts = re.split(r"[\"\\\x00-\x1f\ud800-\udfff]", form)
    return max(parts, key=len).encode().lower().decode()
