"""The secrets of one request: its key, its token, and the other secret headers.

Servers and clients quote requests, so every error of a request passes through here before it is
shown. Only whole texts are searched: a partial secret cannot be found.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

from orchestrator.agents.redaction.named_values import REDACTED
from orchestrator.agents.redaction.secret_variables import is_secret_variable

SHORTEST_SECRET: Final = 6
"""A shorter part of a key is no secret, and occurs in any text."""
COOKIE: Final = "cookie"
LOGIN_HEADERS: Final = frozenset(["authorization", "proxy-authorization", COOKIE])
"""They are secret, though their names do not say so."""
# The characters that Python and JSON escape when they quote a text; other parts are quoted
# unchanged.
_ESCAPED: Final = re.compile(r"[^!-~]+|[\"'\\]+")


class RequestSecrets:
    """Removes the secrets of one request from texts."""

    def __init__(self, keys: Iterable[str], headers: Mapping[str, str]) -> None:
        values = {*keys, *_secrets_in(headers)}
        forms = {form for value in values for form in _forms(value)}
        # The longest first: replacing a part of a form would leave the rest of it.
        self._forms = sorted(
            (form for form in forms if len(form) >= SHORTEST_SECRET),
            key=lambda form: (-len(form), form),
        )

    def removed_from(self, text: str) -> str:
        """Return a text without these secrets, and without half of one at its end."""
        for form in self._forms:
            text = text.replace(form, REDACTED)
        # A long answer was cut when it was read.
        if half := max((_half_at_end(text, form) for form in self._forms), default=0):
            return f"{text[:-half]}{REDACTED}"
        return text

    def are_in(self, error: BaseException) -> bool:
        """Return whether an error, or one that it comes from, contains a secret."""
        link: BaseException | None = error
        while link is not None:
            # The repr has parts that are not in the sentence, such as a text without an encoding.
            for text in (str(link), repr(link)):
                if self.removed_from(text) != text:
                    return True
            link = link.__cause__ or link.__context__
        return False


def _half_at_end(text: str, form: str) -> int:
    """Return the length of the longest start of a form that ends a text."""
    lengths = range(min(len(form), len(text)), SHORTEST_SECRET - 1, -1)
    return next((length for length in lengths if text.endswith(form[:length])), 0)


def _secrets_in(headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        is_login = name.lower() in LOGIN_HEADERS
        if not is_login and not is_secret_variable(name, value):
            continue
        scheme, _, rest = value.strip().partition(" ")
        if not is_login or not rest:
            yield value.strip()
            rest = value
        elif "=" in scheme:
            rest = value  # the first of some cookies
        for word in re.split(r"[\s;]+" if name.lower() == COOKIE else r"[\s,]+", rest):
            yield word
            # A field of a signature or a cookie, and the key that AWS has before a slash in it.
            field = word.partition("=")[2]
            yield field
            yield field.partition("/")[0]


def _forms(value: str) -> Iterator[str]:
    """Yield a value unchanged, as in a URL and in JSON, and its parts that are never escaped."""
    yield value
    yield quote(value, safe="")
    yield value.replace("/", r"\/")
    yield from _ESCAPED.split(value)
