"""Secrets with a recognizable form, such as the key of a provider or the login in an address."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from orchestrator.agents.redaction.key_shapes import KEY_PREFIXES, KEY_SHAPES
from orchestrator.agents.redaction.named_values import (
    ANY_CASE,
    MAX_UNDECIDED,
    REDACTED,
    SECRET_NAME,
    SECRET_NAME_WORDS,
    Replacement,
    Signs,
    has_digit,
    is_not_placeholder,
)
from orchestrator.agents.redaction.private_keys import PEM
from orchestrator.lazy_pattern import lazy_pattern

# A text may itself be JSON, or JSON in JSON: then quotes and new lines have backslashes.
# It may be part of a URL, or coloured for a terminal.
_WORD_STARTS: Final = (
    *(r"(?<![A-Za-z0-9])", r"(?<=\\[nrt])", r"(?<=%[0-9A-Fa-f]{2})"),
    *(r"(?<=[\[;][0-9]m)", r"(?<=[\[;][0-9]{2}m)"),
)
WORD_START: Final = f"(?:{'|'.join(_WORD_STARTS)})"
# A quote ends the text, unless a program concatenates it line by line.
_GAP: Final = r"(?:[^\"']|\\n[\"'][\s+]*[\"']){0,100}?"
LOGIN_IN_URL: Final = lazy_pattern(
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

    def find(self, text: str, low: str, signs: Signs, begin: int = 0) -> Iterator[Replacement]:
        """Yield the secrets that end after an offset."""
        ends = signs.get(self.sign)
        if ends is None:
            found_signs = self.sign.finditer(low if self.is_any_case else text)
            ends = signs[self.sign] = [it.end() for it in found_signs]
        done = 0
        for end in ends:
            for distance in self.distances:
                start = end - distance
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
_HYPHENED_KEY: Final = lazy_pattern(
    f"-(?:{_prefixes_ending_in('-')}|(?<=[ t]-)-?u|(?<=-----)BEGIN )"
)
_COLON: Final = lazy_pattern(r":(?:[/\\]|AA)")
_SCHEME: Final = lazy_pattern("b(?:earer|asic)")


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
        _HYPHENED_KEY,
        (len("-----BEGIN "),),
        lazy_pattern(
            rf"-----BEGIN {PEM}(?>(?:{_GAP}[A-Za-z0-9+/=]{{16,}}+)+)"
            rf"(?:{_GAP}-----END {PEM})?"
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
    _Rule(_COLON, range(15, 8, -1), lazy_pattern(WORD_START + "[0-9]{6,12}:AA[A-Za-z0-9_-]{30,}")),
    _Rule(
        _SCHEME,
        (len("bearer"),),
        lazy_pattern(
            rf"(?P<kept>{WORD_START}bearer[ \t]+)(?P<value>[A-Za-z0-9._~+/=-]{{8,}})", ANY_CASE
        ),
        _is_bearer,
        is_any_case=True,
    ),
    _Rule(
        _SCHEME,
        (len("basic"),),
        lazy_pattern(
            rf"(?P<kept>{WORD_START}basic[ \t]+)(?P<value>[A-Za-z0-9+/]{{8,}}={{0,2}})", ANY_CASE
        ),
        _is_basic,
        is_any_case=True,
    ),
    _Rule(_COLON, (2,), LOGIN_IN_URL, is_not_placeholder),
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


def has_secret_mark(raw: str, low: str) -> bool:
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
        or (("key" in low or "token" in low) and _KEY_OR_TOKEN.search(low) is not None)
        or _UNDERSCORED_KEY.search(low) is not None
    )
