"""The redactor: removes keys, passwords and other secrets from texts.

Redaction is idempotent: a redacted text stays the same. In doubt a text that looks like a secret is
removed, and a word too many with it; source code and prose stay unchanged.

It is against accidents. Who wants to show a secret can write it in a form that is not known here.
"""

import base64
import binascii
import html
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote, unquote

import msgspec

from orchestrator.agents.redaction.key_shapes import KEY_PREFIXES, KEY_SHAPES
from orchestrator.agents.redaction.named_values import (
    ANY_CASE,
    ENDS_IN_SECRET_NAME,
    HARMLESS_WORDS,
    MAX_UNDECIDED,
    MIN_SECRET_LENGTH,
    REDACTED,
    SECRET_NAME,
    SECRET_NAME_WORDS,
    NamedValue,
    Replacement,
    has_digit,
    is_not_placeholder,
    lowered,
    named_secrets,
    replaced,
)
from orchestrator.lazy_pattern import lazy_pattern

T = TypeVar("T")

# The length of a form's beginning that is searched for at the end of a text.
_BEGINNING: Final = 4
# Of English, and of ids, the rarest first. All else is taken for frequent.
_RARE: Final = "qzjxkvwypgbmfculhdrsnioate"
_NOT_RARE: Final = 1_000
MOST_CLEAN: Final = 100
"""How many short texts are known to contain no secret."""
LONG_TEXT: Final = 8_192
"""The search of a longer text is worth a thread, and its result worth remembering."""
REMEMBERED: Final = 20_000_000
"""The number of characters of long texts that are remembered with their redacted form."""
REMEMBERED_TREES: Final = 8
"""How many values of many texts are remembered; each is recalled soon, by its post."""
LONGEST_MARK: Final = 64
"""The longest mark, including the characters around it that are examined."""
MIN_DECLARED_SECRET_LENGTH: Final = 4
"""A declared variable is secret even if its value is short."""

# A text may itself be JSON, or JSON in JSON: then quotes and new lines have backslashes.
# It may be part of a URL, or coloured for a terminal.
_WORD_STARTS: Final = (
    *(r"(?<![A-Za-z0-9])", r"(?<=\\[nrt])", r"(?<=%[0-9A-Fa-f]{2})"),
    *(r"(?<=[\[;][0-9]m)", r"(?<=[\[;][0-9]{2}m)"),
)
WORD_START: Final = f"(?:{'|'.join(_WORD_STARTS)})"
_PEM: Final = r"(?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_PEM_END: Final = lazy_pattern(rf"-----END {_PEM}")
MAX_PEM_LINE: Final = 75
"""With its line end. OpenSSL and PGP write 64 letters a line, OpenSSH 70; mails have 76."""
# With the line end, which may be escaped as in JSON.
_PEM_LINE: Final = lazy_pattern(
    r"(?:(?<=\\[nr])|(?<![A-Za-z0-9+/=\\]))(?P<letters>[A-Za-z0-9+/=]+)(?:\s|\\+[nr])+\Z"
)
_SHORTEST_PEM_LINE: Final = 16
"""The letters of a line, except for the last line."""
IN_BASE64: Final = f"{string.ascii_letters}{string.digits}+/="
# A quote ends the text, unless a program concatenates it line by line.
_GAP: Final = r"(?:[^\"']|\\n[\"'][\s+]*[\"']){0,100}?"
_LOGIN_IN_URL: Final = lazy_pattern(
    r"(?P<kept>:\\{0,7}/\\{0,7}/[^/\s:@\"'\\<>]*+:)(?P<value>[^/\s\"'\\<>]+)(?=@)"
)


def _is_always_secret(_value: str) -> bool:
    return True


class _Rule(msgspec.Struct, frozen=True):
    """A kind of secret that has a recognizable form."""

    sign: re.Pattern[str]
    """Every match has it, and it is found fast: the pattern is tried only around it."""
    distances: Iterable[int]
    """How many characters there may be from the beginning of a match to the end of its sign."""
    pattern: re.Pattern[str]
    """Matches are replaced, except for the group `kept`."""
    is_secret: Callable[[str], bool] = _is_always_secret
    is_any_case: bool = False
    """Whether the sign, in lower case, stands for letters of any case."""

    def find(self, text: str, low: str, begin: int = 0) -> Iterator[Replacement]:
        """Yield the secrets that end after an offset."""
        done = 0
        for sign in self.sign.finditer(low if self.is_any_case else text):
            for distance in self.distances:
                start = sign.end() - distance
                if start >= done and (found := self.pattern.match(text, start)):
                    done = found.end()
                    groups = found.groupdict()
                    if done > begin and self.is_secret(groups.get("value") or found[0]):
                        yield start + len(groups.get("kept") or ""), done, REDACTED
                    break


def _is_key(text: str) -> bool:
    """Distinguish a key from words with hyphens between them."""
    return any(len(part) >= 16 for part in re.split(r"[_-]", text)) and has_digit(text)


def _is_bearer(text: str) -> bool:
    if len(text) > MAX_UNDECIDED:
        return True
    return re.fullmatch(r"[A-Za-z]?[a-z]*(?:-[a-z]+)*[.=]*", text) is None


def _is_basic(text: str) -> bool:
    """Return whether this is a user name and a password of basic authentication."""
    # No word is as long, and a stream cannot wait for the colon of a user name without end.
    if len(text) > MAX_UNDECIDED:
        return True
    whole = text.rstrip("=")
    whole = whole[: len(whole) // 4 * 4] if len(whole) % 4 == 1 else whole
    try:
        decoded = base64.b64decode(whole + "=" * (-len(whole) % 4))
    except binascii.Error:
        return False
    return b":" in decoded


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
_UNDERSCORED_KEY: Final = lazy_pattern(f"_{_prefixes_ending_in('_')}")
_HYPHENED_KEY: Final = lazy_pattern(f"-(?:{_prefixes_ending_in('-')}|(?<=[ t]-)-?u)")


def _prefixes_by_letter() -> dict[str, list[str]]:
    """Return the other prefixes by the rare letter in them, which is looked for first."""
    prefixes: dict[str, list[str]] = {}
    for shape in KEY_SHAPES:
        others = [prefix for prefix in shape.prefixes if prefix[-1] not in "_-"]
        if others:
            prefixes.setdefault(shape.rare_letter, []).extend(others)
    return prefixes


_OTHER_PREFIXES: Final = tuple(_prefixes_by_letter().items())


def _prefixes_with(letter: str, prefixes: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for prefixes that starts with their rare letter."""
    parts = (map(re.escape, prefix.partition(letter)) for prefix in prefixes)
    each = "|".join(f"(?<={before}{letter}){after}" for before, letter, after in parts)
    return lazy_pattern(f"{letter}(?:{each})")


def _rules_for_keys(sign: re.Pattern[str], letter: str) -> Iterator[_Rule]:
    """Yield the rules for keys by the last character of their prefix, or by its rare letter."""
    for is_like_words in (False, True):
        shapes = [
            shape
            for shape in KEY_SHAPES
            if letter in {shape.prefixes[0][-1], shape.rare_letter}
            and shape.is_like_words == is_like_words
        ]
        if not shapes:
            continue
        each = (f"(?:{'|'.join(map(re.escape, it.prefixes))}){it.rest}" for it in shapes)
        lengths = sorted({len(shape.prefixes[0]) for shape in shapes}, reverse=True)
        yield _Rule(
            sign,
            lengths,
            # Not in the middle of a word.
            lazy_pattern(f"{WORD_START}(?:{'|'.join(each)})"),
            _is_key if is_like_words else _is_always_secret,
        )


_NAMES_BY_LENGTH: Final = sorted((*SECRET_NAME_WORDS, "credentials"), key=len, reverse=True)
RULES: Final = (
    _Rule(
        lazy_pattern("-----BEGIN "),
        (len("-----BEGIN "),),
        lazy_pattern(
            rf"-----BEGIN {_PEM}(?>(?:{_GAP}[A-Za-z0-9+/=]{{16,}}+)+)"
            rf"(?:{_GAP}-----END {_PEM})?"
        ),
    ),
    # With the longer beginning it is a key wherever it stands.
    _Rule(_HYPHENED_KEY, (3,), lazy_pattern(r"sk-(?:ant|proj|svcacct)-[A-Za-z0-9_-]{8,}")),
    *_rules_for_keys(_HYPHENED_KEY, "-"),
    *_rules_for_keys(_UNDERSCORED_KEY, "_"),
    *(
        rule
        for letter, prefixes in _OTHER_PREFIXES
        for rule in _rules_for_keys(_prefixes_with(letter, prefixes), letter)
    ),
    # Telegram
    _Rule(
        lazy_pattern(":AA"),
        range(15, 8, -1),
        lazy_pattern(WORD_START + "[0-9]{6,12}:AA[A-Za-z0-9_-]{30,}"),
    ),
    _Rule(
        lazy_pattern("bearer"),
        (len("bearer"),),
        lazy_pattern(
            rf"(?P<kept>{WORD_START}bearer[ \t]+)(?P<value>[A-Za-z0-9._~+/=-]{{8,}})", ANY_CASE
        ),
        _is_bearer,
        is_any_case=True,
    ),
    _Rule(
        lazy_pattern("basic"),
        (len("basic"),),
        lazy_pattern(
            rf"(?P<kept>{WORD_START}basic[ \t]+)(?P<value>[A-Za-z0-9+/]{{8,}}={{0,2}})", ANY_CASE
        ),
        _is_basic,
        is_any_case=True,
    ),
    _Rule(lazy_pattern(r":[/\\]"), (2,), _LOGIN_IN_URL, is_not_placeholder),
    _Rule(
        lazy_pattern("curl"),
        (len("curl"),),
        lazy_pattern(
            r"(?P<kept>\bcurl\b.{0,200}?[ \t](?:-u|--user)[ \t=]*\\{0,15}[\"']?"
            r"[^\s:\"'\\]{1,100}:)(?P<value>[^\s\"'\\]+)",
            re.DOTALL,
        ),
        is_not_placeholder,
    ),
    _Rule(
        lazy_pattern(f">(?:{'|'.join(f'(?<={name}>)' for name in _NAMES_BY_LENGTH)})"),
        [len(name) + 1 for name in _NAMES_BY_LENGTH],
        lazy_pattern(rf"(?P<kept>{SECRET_NAME}>)(?P<value>[^<>\s]{{4,500}})(?=</)", ANY_CASE),
        is_not_placeholder,
        is_any_case=True,
    ),
)
# Every fact counts tokens, in the plural.
# A name without a value, as every message from HTTP has one (`session_key`), is no secret.
_KEY_OR_TOKEN: Final = lazy_pattern(
    'k(?:ey(?![a-z]|":"",")(?:(?<=[_-]key)|(?<=(?:api|ret|ate|te |ess|unt)key)'
    "|(?<=(?:uth|ion|ing|ter|ice)key))|en(?!s)(?<=token))"
)


class Redactor:
    """Removes secrets from texts, and from JSON-like trees of them.

    Args:
        known: values that are secret whatever they look like. They are found verbatim, escaped
            as in JSON, HTML or a URL, as hex, as base64 in lines or in the middle of more, and
            reversed.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self.known: list[str] = []
        self._searched: dict[str, str] = {}
        """Long texts that were searched ahead, with their redacted form; the oldest first."""
        self._remembered = 0
        self._trees: dict[int, tuple[object, object]] = {}
        """Values of many texts that were searched ahead, by their identity; the oldest first."""
        self._given = frozenset(known)
        self._learned: dict[str, frozenset[str]] = {}
        """Secrets that were learned later, by their source."""
        self._index(self._given)

    def learn(self, values: Iterable[str], *, source: str = "") -> None:
        """Remove these values, too, from now on.

        Args:
            values: what is secret whatever it looks like.
            source: what they replace, if anything: a token that is renewed every hour would fill
                the memory otherwise. Those learned from this source before are forgotten.
        """
        before = self._learned.get(source, frozenset())
        now = frozenset(values).union(() if source else before)
        if now != before:
            self._learned[source] = now
            self._searched.clear()
            self._trees.clear()
            self._remembered = 0
            self._index(self._given.union(*self._learned.values()))

    def _index(self, known: Iterable[str]) -> None:
        self.clean: set[str] = set()
        """Some short texts that contain no secret."""
        values = {value for value in known if value.strip("*")}
        self.known = sorted(values)
        forms = {form for value in values for form in _forms(value)}
        # The longest first: replacing a part of a form would leave the rest of it.
        self.forms = sorted(forms, key=lambda form: (-len(form), form))
        self._marks = _by_rare_letter({_mark(form) for form in forms})
        self._longest = max(map(len, forms), default=0)
        self.longest_mark = max(LONGEST_MARK, self._longest)
        """The overlap, in characters, of a text that is searched for marks piece by piece."""
        self._by_beginning: dict[str, list[str]] = {}
        for form in self.forms:
            self._by_beginning.setdefault(form[:_BEGINNING], []).append(form)
        self._parts = frozenset(
            form[at : at + _BEGINNING] for form in forms for at in range(len(form))
        )
        self._short_beginnings = frozenset(
            form[:length] for form in forms for length in range(1, min(_BEGINNING, len(form)))
        )

    def redact(self, text: str) -> str:
        """Return a text without its secrets."""
        if len(text) > LONG_TEXT and (known := self._searched.get(text)) is not None:
            return known
        # To suspect a secret is many times cheaper than to search for each. (Some letters of other
        # scripts equal ASCII letters in lower case, so texts in other scripts are always searched.)
        if text.isascii() and not self.may_hold_secret(msgspec.json.encode(text)):
            return text
        # Until nothing changes: the rest may look like a secret only now.
        while (redacted := self._redact_once(text)) != text:
            text = redacted
        return text

    def has_searched(self, text: str) -> bool:
        """Return whether the result of this search is remembered."""
        return text in self._searched

    def remember(self, text: str, redacted: str) -> None:
        """Remember the redacted form of a long text, as long as there is room."""
        # Redaction is idempotent: the rest is searched, too.
        for each, result in ((text, redacted), (redacted, redacted)):
            if each not in self._searched:
                self._searched[each] = each if each == result else result
                self._remembered += len(each)
        while self._remembered > REMEMBERED and len(self._searched) > 2:
            oldest = next(iter(self._searched))
            del self._searched[oldest]
            self._remembered -= len(oldest)

    def remember_tree(self, value: object, redacted: object) -> None:
        """Remember the redacted form of a value with many texts, until it is recalled.

        The value must not change: it is known by its identity, because a comparison would take as
        long.
        """
        self._trees[id(value)] = (value, redacted)
        if len(self._trees) > REMEMBERED_TREES:
            del self._trees[next(iter(self._trees))]

    def recall_tree(self, value: T) -> T | None:
        """Return the redacted form of a value that was searched ahead, once."""
        # It is kept with its result: no other value has its identity meanwhile.
        found = self._trees.pop(id(value), None)
        return None if found is None else cast("T", found[1])

    def is_clean(self, text: str) -> bool:
        """Return whether a short text certainly contains no secret, and remember it then.

        Outcomes repeat the last answer, and many goals are the same: look in `clean` first.
        """
        if len(text) > LONG_TEXT or self.may_hold_secret(msgspec.json.encode(text)):
            return False
        if len(self.clean) >= MOST_CLEAN:
            self.clean.clear()
        self.clean.add(text)
        return True

    def may_hold_secret(self, body: bytes) -> bool:
        """Return whether an encoded fact may contain a secret, with false positives only.

        The searched marks contain no character that JSON escapes.
        """
        raw, low = body.decode(), body.lower().decode()
        if _has_secret_mark(raw, low):
            return True
        for letter, marks in self._marks:
            # A letter is found many times as fast as a word, and most texts have no `q`.
            if letter in low and any([mark in low for mark in marks]):  # noqa: C419 (faster)
                return True
        return False

    def partial_secret_length(self, text: str) -> int:
        """Return the length of the longest end of a text that may begin a known value."""
        end = text[max(0, len(text) - self._longest + 1) :]
        could_begin = end[-_BEGINNING:] in self._parts
        # The first find is the longest.
        for at in range(len(end) - _BEGINNING + 1) if could_begin else ():
            for form in self._by_beginning.get(end[at : at + _BEGINNING], ()):
                # One that is whole is not partial.
                if len(end) - at < len(form) and form.startswith(end[at:]):
                    return len(end) - at
        for length in range(min(len(end), _BEGINNING - 1), 0, -1):
            if end[-length:] in self._short_beginnings:
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
                    self.redact_tree(name): self._redact_field(name, item) for name, item in items
                }
            case list() | tuple():
                return [self.redact_tree(part) for part in cast("Iterable[object]", value)]
            case _:
                return value

    def _redact_once(self, text: str) -> str:
        for form in self.forms:
            text = text.replace(form, REDACTED)
        low = lowered(text)
        for find in _SEARCHES:
            if found := [*find(text, low)]:
                text = replaced(text, found)
                low = lowered(text)
        return text

    def finds_secret_after(self, text: str, begin: int, first_name: int = 0) -> bool:
        """Return whether a text has a secret that ends after an offset."""
        if not self.may_hold_secret(text.encode(errors="replace")):
            return False
        for form in self.forms:
            if text.find(form, max(0, begin - len(form) + 1)) >= 0:
                return True
        low = lowered(text)
        if any(True for _ in named_secrets(text, low, begin, first_name)):
            return True
        return any(True for find in _UNNAMED for _ in find(text, low, begin))

    def _redact_field(self, name: object, value: object) -> Any:
        # Under such a name, a schema describes a password, and a flag whether there is one.
        is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        if is_plain and isinstance(name, str) and (found := ENDS_IN_SECRET_NAME.search(name)):
            named = NamedValue(name[: found.start()], found["name"], quoted=True)
            if named.is_secret(str(value)):
                return REDACTED
        return self.redact_tree(value)


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


def ends_of_private_keys(text: str, _low: str, begin: int = 0) -> Iterator[Replacement]:
    """Yield the private keys whose beginning was cut off, if they end after an offset."""
    done = 0
    for end in _PEM_END.finditer(text):
        start = start_of_key_lines(text, end.start(), done)
        if start < end.start():
            done = end.end()
            if done > begin:
                yield start, done, REDACTED


_UNNAMED: Final = (*(rule.find for rule in RULES), ends_of_private_keys)
_SEARCHES: Final = (*(rule.find for rule in RULES), named_secrets, ends_of_private_keys)


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


def _by_rare_letter(marks: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return marks by the letter of each that the fewest texts contain."""
    groups: dict[str, list[str]] = {}
    for mark in sorted(marks):
        rare = min(mark, key=lambda letter: _RARE.find(letter) % _NOT_RARE, default="")
        groups.setdefault(rare, []).append(mark)
    return tuple((letter, tuple(group)) for letter, group in groups.items())


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


# The words in names of variables that mark a secret.
_SECRET_WORDS: Final = lazy_pattern(
    r"(?:.*(?:PASSWORD|PASSWD|PASSPHRASE|SECRETS?|TOKEN|CREDENTIALS?|APIKEY|ACCESSKEY"
    r"|SECRETKEY|PRIVATEKEY)|KEY|(?:SSH)?PASS|AUTH|PRIVATE|JWT|PAT)"
)
# Anyone who knows such an address may send to it.
_SECRET_ADDRESSES: Final = frozenset([("WEBHOOK", "URL"), ("SENTRY", "DSN")])
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


def has_redacted(tree: object) -> bool:
    """Return whether something may be missing in a value that was recorded."""
    return REDACTED.encode() in msgspec.json.encode(tree)


def is_secret_variable(name: str, value: str, *, declared: bool = False) -> bool:
    """Return whether a variable is secret: declared so, or by its name or its value."""
    if declared:
        return True
    value = value.strip()
    has_secret_name = (
        _has_secret_name(name) and value.lower() not in HARMLESS_WORDS and not _is_path(value)
    )
    return has_secret_name or redacted(value) != value


def secret_values(environ: Mapping[str, str], declared: Iterable[str] = ()) -> list[str]:
    """Return the secret values of an environment, the longest first.

    Args:
        environ: the variables of this process.
        declared: variables that are secret whatever their names.
    """
    declared = frozenset(declared)
    secrets: set[str] = set()
    for name, value in environ.items():
        bare = value.strip()
        if is_secret_variable(name, bare, declared=name in declared) and not _is_path(bare):
            logins = [found["value"] for found in _LOGIN_IN_URL.finditer(bare)]
            # The rest of a URL is not secret.
            is_whole_value = name in declared or (_has_secret_name(name) and not logins)
            parts = [*logins, *map(unquote, logins), *([bare] if is_whole_value else [])]
            shortest = MIN_DECLARED_SECRET_LENGTH if name in declared else MIN_SECRET_LENGTH
            secrets.update(part for part in parts if len(part) >= shortest)
    return sorted(secrets, key=lambda secret: (-len(secret), secret))


def _has_secret_name(name: str) -> bool:
    words = [word for word in re.split(r"[^A-Z]+", name.upper()) if word]
    if words[-3:] == ["ACCESS", "KEY", "ID"] or tuple(words[-2:]) in _SECRET_ADDRESSES:
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
