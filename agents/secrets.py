"""What must not be written down: keys, passwords and the like are taken out of texts.

Taking out twice changes nothing, so what was once written compares equal to what would be.
A word too many may go; a secret may not stay.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

TAKEN_OUT: Final = "***"

_NAME: Final = (
    r"(?:password|passwd|passphrase|secret|credentials?|api[_-]?key"
    r"|(?:secret|private|access)[_-]?key|(?<![a-z_-])token"
    r"|(?:access|auth|refresh|bearer|session|(?<![a-z])id)[_-]?token)"
)
# A text may itself be JSON, or JSON in JSON: then quotes and new lines have backslashes.
_START: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_IS: Final = r"\\*[\"']?[ \t]*[:=][ \t]*"
# What is cut off has no quote at its end, and is as secret as the whole.
_VALUE: Final = (
    r"\"(?:\\.|[^\"\\\n])*(?:\"|\\?$)|'(?:\\.|[^'\\\n])*(?:'|\\?$)"
    r"|\\+\".*?(?:\\+\"|$)|[^\s\"'\\&;]+"
)

_NAMED: Final = re.compile(rf"({_NAME}{_IS})({_VALUE})", re.IGNORECASE | re.MULTILINE)
_SECRET_NAME: Final = re.compile(rf"{_NAME}|authorization", re.IGNORECASE)
_SHAPES: Final = (
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        re.DOTALL,
    ),
    # OpenAI, Anthropic and others; with the longer beginning it is one wherever it stands.
    re.compile(rf"(?:{_START}sk-|sk-(?:ant|proj|svcacct)-)[A-Za-z0-9_-]{{8,}}"),
    re.compile(rf"{_START}(?:gh[opsur]|github_pat|hf)_[A-Za-z0-9_]{{20,}}"),
    re.compile(rf"{_START}AKIA[A-Z0-9]{{16}}"),
    re.compile(rf"{_START}AIza[A-Za-z0-9_-]{{30,}}"),
)
_HEADERS: Final = (
    re.compile(rf"({_START}bearer[ \t]+)[A-Za-z0-9._~+/=-]{{8,}}", re.IGNORECASE),
    re.compile(
        rf"(authorization{_IS}\\*[\"']?(?:(?:basic|bearer|digest|token)[ \t]+)?)"
        r"[^\s\"'\\]+",
        re.IGNORECASE,
    ),
    re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://[^/\s:@]*:)[^/\s@]+(?=@)", re.IGNORECASE),
)


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """Return a text without its secrets.

    Args:
        text: what is about to be written or shown.
        known: values that are secret whatever they look like.
    """
    # The longest first: a part that is taken out early would leave the rest of the whole.
    for value in sorted(filter(None, known), key=len, reverse=True):
        text = text.replace(value, TAKEN_OUT)
    for shape in _SHAPES:
        text = shape.sub(TAKEN_OUT, text)
    for header in _HEADERS:
        text = header.sub(rf"\1{TAKEN_OUT}", text)
    return _NAMED.sub(_without_value, text)


def redacted_tree(tree: object, known: Iterable[str] = ()) -> Any:
    """Return lists and mappings without the secrets in their texts, or under telling names."""
    known = tuple(known)
    match tree:
        case str():
            return redacted(tree, known)
        case Mapping():
            items = cast("Mapping[Any, object]", tree).items()
            return {
                redacted_tree(name, known): TAKEN_OUT
                if _is_secret(name, value)
                else redacted_tree(value, known)
                for name, value in items
            }
        case list() | tuple():
            parts = cast("Iterable[object]", tree)
            return [redacted_tree(part, known) for part in parts]
        case _:
            return tree


def _is_secret(name: object, value: object) -> bool:
    # A schema says under such a name what a password is like, and a flag that there is one.
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return is_plain and _SECRET_NAME.search(str(name)) is not None


def _without_value(found: re.Match[str]) -> str:
    name, value = found.groups()
    # What is quoted stays quoted, so that what was JSON still is.
    quote = re.match(r"\\*[\"']", value)
    around = quote[0] if quote is not None else ""
    return f"{name}{around}{TAKEN_OUT}{around}"
