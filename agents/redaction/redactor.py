"""The redactor: removes keys, passwords and other secrets from texts.

Redaction is idempotent: a redacted text stays the same. In doubt a text that looks like a secret is
removed, and a word too many with it; source code and prose stay unchanged.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, unquote

import attrs

from agents.redaction.key_shapes import KEY_PREFIXES, KEY_SHAPES, KeyShape
from agents.redaction.named_values import (
    ANY_CASE,
    ENDS_IN_SECRET_NAME,
    HARMLESS_WORDS,
    MIN_SECRET_LENGTH,
    REDACTED,
    SECRET_NAME,
    SECRET_NAME_WORDS,
    NamedValue,
    has_digit,
    is_not_placeholder,
    redact_named_values,
)

MIN_DECLARED_SECRET_LENGTH: Final = 4
"""A declared variable is secret even if its value is short."""

# A text may itself be JSON, or JSON in JSON: then quotes and new lines have backslashes.
# It may be part of a URL, or coloured for a terminal.
_WORD_STARTS: Final = (
    *(r"(?<![A-Za-z0-9])", r"(?<=\\[nrt])", r"(?<=%[0-9A-Fa-f]{2})"),
    *(r"(?<=[\[;][0-9]m)", r"(?<=[\[;][0-9]{2}m)"),
)
_WORD_START: Final = f"(?:{'|'.join(_WORD_STARTS)})"
_PEM: Final = r"(?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_PEM_END: Final = re.compile(rf"-----END {_PEM}")
MAX_PEM_LINE: Final = 200
# With the line end, which may be escaped as in JSON.
_PEM_LINE: Final = re.compile(
    r"(?:(?<=\\[nr])|(?<![A-Za-z0-9+/=\\]))[A-Za-z0-9+/=]{16,}(?:\s|\\+[nr])+\Z"
)
# A quote ends the text, unless a program concatenates it line by line.
_GAP: Final = r"(?:[^\"']|\\n[\"'][\s+]*[\"']){0,100}?"
_LOGIN_IN_URL: Final = re.compile(
    r"(?P<kept>:\\{0,7}/\\{0,7}/[^/\s:@\"'\\<>]*+:)(?P<value>[^/\s\"'\\<>]+)(?=@)"
)


def _is_always_secret(_value: str) -> bool:
    return True


@attrs.frozen
class _Rule:
    """A kind of secret that has a recognizable form."""

    marks: tuple[str, ...]
    """In lower case. A text without any of them has no such secret."""
    pattern: re.Pattern[str]
    """Matches are replaced, except for the group `kept`."""
    is_secret: Callable[[str], bool] = _is_always_secret

    def apply(self, text: str) -> str:
        return self.pattern.sub(self._replacement, text)

    def _replacement(self, found: re.Match[str]) -> str:
        groups = found.groupdict()
        if not self.is_secret(groups.get("value") or found[0]):
            return found[0]
        return f"{groups.get('kept') or ''}{REDACTED}"


def _is_key(text: str) -> bool:
    """Distinguish a key from words with hyphens between them."""
    return any(len(part) >= 16 for part in re.split(r"[_-]", text)) and has_digit(text)


def _is_bearer(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z]?[a-z]*(?:-[a-z]+)*[.=]*", text) is None


def _is_basic(text: str) -> bool:
    """Return whether this is a user name and a password of basic authentication."""
    whole = text.rstrip("=")
    whole = whole[: len(whole) // 4 * 4] if len(whole) % 4 == 1 else whole
    try:
        decoded = base64.b64decode(whole + "=" * (-len(whole) % 4))
    except binascii.Error:
        return False
    return b":" in decoded


def _rule_for_shape(shape: KeyShape) -> _Rule:
    """Return the rule for keys of this shape, except in the middle of a word."""
    start = f"(?:{'|'.join(map(re.escape, shape.prefixes))})"
    # A pattern that starts with letters is found much faster than one with a look-behind.
    begins_word = "|".join(f"{behind[:-1]}{start})" for behind in _WORD_STARTS)
    return _Rule(
        tuple(map(str.lower, shape.prefixes)),
        re.compile(f"{start}(?:{begins_word}){shape.rest}"),
        _is_key if shape.is_like_words else _is_always_secret,
    )


_RULES: Final = (
    _Rule(
        ("private key",),
        re.compile(
            rf"-----BEGIN {_PEM}(?:{_GAP}[A-Za-z0-9+/=]{{16,}}+)++"
            rf"(?:{_GAP}-----END {_PEM})?"
        ),
    ),
    # With the longer beginning it is a key wherever it stands.
    _Rule(("sk-",), re.compile(r"sk-(?:ant|proj|svcacct)-[A-Za-z0-9_-]{8,}")),
    *map(_rule_for_shape, KEY_SHAPES),
    # Telegram
    _Rule((":aa",), re.compile(_WORD_START + "[0-9]{6,12}:AA[A-Za-z0-9_-]{30,}")),
    _Rule(
        ("bearer",),
        re.compile(
            rf"(?P<kept>{_WORD_START}bearer[ \t]+)(?P<value>[A-Za-z0-9._~+/=-]{{8,}})",
            ANY_CASE,
        ),
        _is_bearer,
    ),
    _Rule(
        ("basic",),
        re.compile(
            rf"(?P<kept>{_WORD_START}basic[ \t]+)(?P<value>[A-Za-z0-9+/]{{8,}}={{0,2}})",
            ANY_CASE,
        ),
        _is_basic,
    ),
    _Rule(("@",), _LOGIN_IN_URL, is_not_placeholder),
    _Rule(
        ("curl",),
        re.compile(
            r"(?P<kept>\bcurl\b.{0,200}?[ \t](?:-u|--user)[ \t=]*\\{0,15}[\"']?"
            r"[^\s:\"'\\]{1,100}:)(?P<value>[^\s\"'\\]+)",
            re.DOTALL,
        ),
        is_not_placeholder,
    ),
    _Rule(
        ("password>", "passwd>", "passphrase>", "secret>", "token>", "key>"),
        re.compile(
            rf"(?P<kept>{SECRET_NAME}>)(?P<value>[^<>\s]{{4,500}})(?=</)", ANY_CASE
        ),
        is_not_placeholder,
    ),
)


def _prefixes_ending_in(last: str) -> str:
    """Return a look-behind for every prefix of a key that ends in this character.

    The two characters before it are tested first: ids and names of fields have others.
    """
    prefixes = [prefix.lower() for prefix in KEY_PREFIXES if prefix[-1] == last]
    third, second = ("".join({prefix[at] for prefix in prefixes}) for at in (-3, -2))
    each = "|".join(f"(?<={re.escape(prefix)})" for prefix in prefixes)
    return f"(?<=[{third}][{second}]{last})(?:{each})"


# Every fact is searched for these. A pattern that starts with one rare character is tried
# nowhere else, which makes it many times as fast as one that starts with a word.
_UNDERSCORED_KEY: Final = re.compile(f"_{_prefixes_ending_in('_')}")
_HYPHENED_KEY: Final = re.compile(f"-(?:{_prefixes_ending_in('-')}|(?<=[ t]-)-?u)")


def _prefixes_by_letter() -> dict[str, list[str]]:
    """Return the other prefixes by the rare letter in them, which is looked for first."""
    prefixes: dict[str, list[str]] = {}
    for shape in KEY_SHAPES:
        others = [prefix for prefix in shape.prefixes if prefix[-1] not in "_-"]
        if others:
            prefixes.setdefault(shape.rare_letter, []).extend(others)
    return prefixes


_OTHER_PREFIXES: Final = tuple(_prefixes_by_letter().items())
# Every fact counts tokens, in the plural.
_KEY_OR_TOKEN: Final = re.compile(
    "k(?:ey(?![a-z])(?:(?<=[_-]key)|(?<=(?:api|ret|ate|te |ess|unt)key)"
    "|(?<=(?:uth|ion|ing|ter|ice)key))|en(?!s)(?<=token))"
)


class Redactor:
    """Removes secrets from texts, and from JSON-like trees of them.

    Args:
        known: values that are secret whatever they look like. They are found verbatim, escaped
            as in JSON or a URL, and as base64.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        values = {value for value in known if value.strip("*")}
        forms = {form for value in values for form in _forms(value)}
        # The longest first: replacing a part of a form would leave the rest of it.
        self._known = sorted(forms, key=lambda form: (-len(form), form))
        self._marks = tuple({_mark(form) for form in forms})
        self._partial_forms = frozenset(
            form[:length] for form in forms for length in range(1, len(form))
        )
        self._longest = max(map(len, forms), default=0)

    def redact(self, text: str) -> str:
        """Return a text without its secrets."""
        # Until nothing changes: the rest may look like a secret only now.
        while (redacted := self._redact_once(text)) != text:
            text = redacted
        return text

    def may_hold_secret(self, body: bytes) -> bool:
        """Return whether there may be a secret in an encoded fact, with false positives only.

        The marks that it searches for contain nothing that JSON would escape.
        """
        raw, low = body.decode(), body.lower().decode()
        if _has_secret_mark(raw, low):
            return True
        if not self._marks:
            return False
        return any([mark in low for mark in self._marks])  # noqa: C419 (twice as fast)

    def partial_secret_length(self, text: str) -> int:
        """Return the length of the longest end of a text that may begin a known value."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            if text[-length:] in self._partial_forms:
                return length
        return 0

    def redact_tree(self, value: object) -> Any:
        """Return lists and mappings without secrets in their texts or under secret names."""
        match value:
            case str():
                return self.redact(value)
            case Mapping():
                items = cast("Mapping[object, object]", value).items()
                return {
                    self.redact_tree(name): self._redact_field(name, item)
                    for name, item in items
                }
            case list() | tuple():
                return [
                    self.redact_tree(part) for part in cast("Iterable[object]", value)
                ]
            case _:
                return value

    def _redact_once(self, text: str) -> str:
        for form in self._known:
            text = text.replace(form, REDACTED)
        # Searching for a mark is many times cheaper than for a pattern.
        low = text.lower()
        for rule in _RULES:
            if any(mark in low for mark in rule.marks):
                text = rule.apply(text)
        if any(name in low for name in SECRET_NAME_WORDS):
            text = redact_named_values(text)
        return _without_ends_of_private_keys(text) if "-----end " in low else text

    def _redact_field(self, name: object, value: object) -> Any:
        # Under such a name, a schema describes a password, and a flag whether there is one.
        is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        if (
            is_plain
            and isinstance(name, str)
            and (found := ENDS_IN_SECRET_NAME.search(name))
        ):
            named = NamedValue(name[: found.start()], found["name"], quoted=True)
            if named.is_secret(str(value)):
                return REDACTED
        return self.redact_tree(value)


def _without_ends_of_private_keys(text: str) -> str:
    """Remove private keys whose beginning was cut off."""
    parts: list[str] = []
    done = 0
    for end in _PEM_END.finditer(text):
        begin = end.start()
        # Line by line from the end, in linear time.
        while line := _PEM_LINE.search(text[max(done, begin - MAX_PEM_LINE) : begin]):
            begin -= len(line[0])
        if begin < end.start():
            parts += [text[done:begin], REDACTED]
            done = end.end()
    return "".join([*parts, text[done:]])


def _has_secret_mark(raw: str, low: str) -> bool:
    for letter, prefixes in _OTHER_PREFIXES:
        if letter in raw and any(prefix in raw for prefix in prefixes):
            return True
    return (
        ("A" in raw and ":AA" in raw)
        or "@" in raw
        or ("=" in low and "pwd=" in low)
        or ("z" in low and "authorization" in low)
        or "secret" in low
        or "passw" in low
        or "passphrase" in low
        or "credential" in low
        or "bearer" in low
        or "basic" in low
        or ("-" in low and _HYPHENED_KEY.search(low) is not None)
        or _KEY_OR_TOKEN.search(low) is not None
        or _UNDERSCORED_KEY.search(low) is not None
    )


def _forms(value: str) -> set[str]:
    """Return the forms of a value: verbatim, escaped for JSON and URLs, and base64."""
    raw = value.encode("utf-8", "surrogateescape")
    as_json = json.dumps(value, ensure_ascii=False)[1:-1]
    forms = {value, as_json, json.dumps(value)[1:-1], json.dumps(as_json)[1:-1]}
    forms |= {quote(raw, safe=safe) for safe in ("", "/")}
    if len(raw) >= MIN_SECRET_LENGTH:
        # A suffix, such as a new line, changes the last letters only.
        for part in (raw, raw[: len(raw) // 3 * 3]):
            forms.add(base64.b64encode(part).decode().rstrip("="))
            forms.add(base64.urlsafe_b64encode(part).decode().rstrip("="))
    return forms


def _mark(form: str) -> str:
    """Return the longest part of a text that JSON does not escape, in lower case."""
    parts = re.split(r"[\"\\\x00-\x1f\ud800-\udfff]", form)
    return max(parts, key=len).encode().lower().decode()


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """Return a text without its secrets."""
    return Redactor(known).redact(text)


def redacted_tree(tree: object, known: Iterable[str] = ()) -> Any:
    """Return lists and mappings without secrets in their texts or under secret names."""
    return Redactor(known).redact_tree(tree)


# Of the names of variables, word by word.
_SECRET_WORDS: Final = re.compile(
    r"(?:.*(?:PASSWORD|PASSWD|PASSPHRASE|SECRETS?|TOKEN|CREDENTIALS?|APIKEY|ACCESSKEY"
    r"|SECRETKEY|PRIVATEKEY)|KEY|PASS|AUTH|PRIVATE|JWT|PAT)"
)
_HARMLESS_ENDS: Final = frozenset(
    [
        *("URL", "URI", "HOST", "PORT", "SOCK", "SOCKET", "FILE", "PATH", "DIR"),
        *("NAME", "USER", "USERNAME", "TYPE", "MODE", "METHOD", "DOMAIN"),
        *("ENDPOINT", "PROVIDER", "ENABLED", "DISABLED", "ID", "TTL", "TIMEOUT"),
        *("EXPIRY", "LENGTH", "SIZE", "LIMIT", "COUNT", "ISSUER", "AUDIENCE"),
        *("SCOPE", "SCOPES", "REGION", "VERSION", "NETWORK", "POLICY"),
    ]
)
_HARMLESS_KEYS: Final = frozenset(
    [
        *("PUBLIC", "PUB", "PUBLISHABLE", "PRIMARY", "CACHE", "SORT", "PARTITION"),
        *("FOREIGN", "HOT"),
    ]
)


def is_secret_variable(name: str, value: str, *, declared: bool = False) -> bool:
    """Return whether a variable is secret: declared so, or by its name or its value."""
    if declared:
        return True
    value = value.strip()
    has_secret_name = (
        _has_secret_name(name)
        and value.lower() not in HARMLESS_WORDS
        and not _is_path(value)
    )
    return has_secret_name or redacted(value) != value


def secret_values(
    environ: Mapping[str, str], declared: Iterable[str] = ()
) -> list[str]:
    """Return the secret values of an environment, the longest first.

    Args:
        environ: the variables of this process.
        declared: variables that are secret whatever their names.
    """
    declared = frozenset(declared)
    secrets: set[str] = set()
    for name, value in environ.items():
        bare = value.strip()
        if is_secret_variable(name, bare, declared=name in declared) and not _is_path(
            bare
        ):
            logins = [found["value"] for found in _LOGIN_IN_URL.finditer(bare)]
            # The rest of a URL is not secret.
            is_whole_value = name in declared or (_has_secret_name(name) and not logins)
            parts = [
                *logins,
                *map(unquote, logins),
                *([bare] if is_whole_value else []),
            ]
            shortest = (
                MIN_DECLARED_SECRET_LENGTH if name in declared else MIN_SECRET_LENGTH
            )
            secrets.update(part for part in parts if len(part) >= shortest)
    return sorted(secrets, key=lambda secret: (-len(secret), secret))


def _has_secret_name(name: str) -> bool:
    words = [word for word in re.split(r"[^A-Z]+", name.upper()) if word]
    if words[-3:] == ["ACCESS", "KEY", "ID"]:
        return True
    if not words or words[-1] in _HARMLESS_ENDS or not _HARMLESS_KEYS.isdisjoint(words):
        return False
    # `PWD` alone is the working directory of a shell.
    is_password = words[-1] == "PWD" and len(words) > 1
    return is_password or any(map(_SECRET_WORDS.fullmatch, words))


def _is_path(value: str) -> bool:
    """Return whether this names a file: then at most its content is secret."""
    try:
        return value.startswith("/") and Path(value).exists()
    except (OSError, ValueError):
        return False
