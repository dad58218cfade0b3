"""The redactor: removes keys, passwords and other secrets from texts.

Redaction is idempotent: a redacted text stays the same. In doubt a text that looks like a secret is
removed, and a word too many with it; source code and prose stay unchanged.

It is against accidents. Who wants to show a secret can write it in a form that is not known here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from orchestrator.agents.redaction.known_values import by_rare_letter, forms_of, mark_of
from orchestrator.agents.redaction.named_values import (
    ENDS_IN_SECRET_NAME,
    REDACTED,
    NamedValue,
    Replacement,
    Signs,
    lowered,
    named_secrets,
    replaced,
)
from orchestrator.agents.redaction.private_keys import ends_of_private_keys
from orchestrator.agents.redaction.shaped_secrets import RULES, has_secret_mark

T = TypeVar("T")

# The length of a form's beginning that is searched for at the end of a text.
_BEGINNING: Final = 4
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
        """Remove these values, too, from now on, and forget those of the same `source` before.

        A token that is renewed every hour would fill the memory otherwise.
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
        forms = {form for value in values for form in forms_of(value)}
        # The longest first: replacing a part of a form would leave the rest of it.
        self.forms = sorted(forms, key=lambda form: (-len(form), form))
        self._marks = by_rare_letter({mark_of(form) for form in forms})
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
        if has_secret_mark(raw, low):
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
        low, signs = lowered(text), Signs()
        for find in _SEARCHES:
            if found := [*find(text, low, signs)]:
                text = replaced(text, found)
                low, signs = lowered(text), Signs()
        return text

    def finds_secret_after(self, text: str, begin: int, first_name: int = 0) -> bool:
        """Return whether a text has a secret that ends after an offset."""
        if not self.may_hold_secret(text.encode(errors="replace")):
            return False
        for form in self.forms:
            if text.find(form, max(0, begin - len(form) + 1)) >= 0:
                return True
        low, signs = lowered(text), Signs()
        if any(True for _ in named_secrets(text, low, signs, begin, first_name)):
            return True
        return any(True for find in _UNNAMED for _ in find(text, low, signs, begin))

    def _redact_field(self, name: object, value: object) -> Any:
        # Under such a name, a schema describes a password, and a flag whether there is one.
        is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        if is_plain and isinstance(name, str) and (found := ENDS_IN_SECRET_NAME.search(name)):
            named = NamedValue(name[: found.start()], found["name"], quoted=True)
            if named.is_secret(str(value)):
                return REDACTED
        return self.redact_tree(value)


_UNNAMED: Final = (*(rule.find for rule in RULES), ends_of_private_keys)
_SEARCHES: Final[tuple[Callable[[str, str, Signs], Iterator[Replacement]], ...]] = (
    *(rule.find for rule in RULES),
    named_secrets,
    ends_of_private_keys,
)


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """Return a text without its secrets."""
    return Redactor(known).redact(text)


def redacted_tree(tree: object, known: Iterable[str] = ()) -> Any:
    """Return lists and mappings without secrets in their texts or under secret names."""
    return Redactor(known).redact_tree(tree)


def has_redacted(tree: object) -> bool:
    """Return whether something may be missing in a value that was recorded."""
    return REDACTED.encode() in msgspec.json.encode(tree)
