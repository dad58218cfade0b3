"""YAML as data: texts, numbers, lists and mappings, each with its line.

It may be the file of a stranger. So there are no tags, no anchors and no second document, and a
plain word is a text unless it is a number, `true`, `false` or `null`: `no` is no boolean here.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from orchestrator.products.agent_files.located import AgentFileError, Located, Value

DEEPEST: Final = 20
WHOLE: Final = re.compile(r"[-+]?[0-9]+")
DECIMAL: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
WORDS: Final = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "true": True,
    "True": True,
    "false": False,
    "False": False,
}
HINTS: Final = {
    "mapping values are not allowed": "a text with ': ' in it is written in quotes",
    "\\t": "lines are indented with spaces, not with tabs",
    "expected <block end>": "this line is indented unlike the ones above it",
    "could not find expected ':'": "a key is followed by ': ' and its value",
    "quoted scalar": "a quote is opened here, and not closed",
    "flow sequence": "'[' is opened here, and not closed; between two items is a comma",
    "flow mapping": "'{' is opened here, and not closed; between two keys is a comma",
    "undefined alias": "a text that begins with '*' is written in quotes",
}


def read_yaml(text: str, file: Path, first_line: int = 1) -> Located:
    """Return the one document of a text."""
    return _Document(text, file, first_line).read()


class _Document:
    def __init__(self, text: str, file: Path, first_line: int) -> None:
        self._text = text
        self._file = file
        self._first_line = first_line
        self._events: Iterator[Event] = iter(())

    def read(self) -> Located:
        try:
            events = [*self._bounded(_events(self._text))]
        except yaml.MarkedYAMLError as exc:
            problem = f"{exc.context or ''} {exc.problem or 'it cannot be read'}"
            # What is not closed is found at the end, and mended where it is opened.
            is_open = "flow" in problem or "quoted" in problem
            mark = exc.context_mark if is_open else exc.problem_mark
            hint = next((HINTS[it] for it in HINTS if it in problem), problem.strip())
            raise self._error(0 if mark is None else mark.line, hint) from exc
        except yaml.YAMLError as exc:
            # A character that no text has; the reader knows its position, and no line.
            position: int = getattr(exc, "position", 0)
            line = self._text.count("\n", 0, position)
            raise self._error(line, "a control character is no text") from exc
        documents = [it for it in events if isinstance(it, yaml.DocumentStartEvent)]
        if len(documents) > 1:
            raise self._error(_line(documents[1]), "a file has one document: remove the '---'")
        contents = [it for it in events if isinstance(it, NodeEvent | CollectionEndEvent)]
        if not contents:
            return Located(None, self._file, self._first_line)
        self._events = iter(contents)
        return self._node(next(self._events))

    def _bounded(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yield events up to the deepest level: the parser takes minutes for thousands of them."""
        depth = 0
        for event in events:
            depth += isinstance(event, CollectionStartEvent)
            depth -= isinstance(event, CollectionEndEvent)
            if depth > DEEPEST:
                raise self._error(_line(event), f"more than {DEEPEST} levels")
            yield event

    def _node(self, event: Event, *, key_line: int = 0) -> Located:
        line = self._first_line + _line(event)
        self._require_plain(event)
        value: Value
        match event:
            case MappingStartEvent():
                value = self._mapping()
            case SequenceStartEvent():
                value = tuple(self._items())
            case ScalarEvent():
                value = _resolved(event)
            case _:
                raise AssertionError(f"{event!r} begins no value")
        return Located(value, self._file, line, key_line)

    def _mapping(self) -> dict[str, Located]:
        found: dict[str, Located] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._node(event)
            if not isinstance(key.value, str):
                key.refuse("a key is a word: write it in quotes, if it is one")
            if key.value in found:
                first = found[key.value].key_line
                key.refuse(f"the key {key.value!r} is there twice: see line {first}")
            found[key.value] = self._node(next(self._events), key_line=key.line)
        return found

    def _items(self) -> Iterator[Located]:
        while not isinstance(event := next(self._events), SequenceEndEvent):
            yield self._node(event)

    def _require_plain(self, event: Event) -> None:
        line = _line(event)
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            raise self._error(
                line,
                "'&' and '*' mean anchors in YAML, which are not read here: a text that"
                " begins so is written in quotes",
            )
        if getattr(event, "tag", None):
            raise self._error(
                line,
                "'!' means a tag in YAML, which is not read here: a text that begins so is"
                " written in quotes",
            )

    def _error(self, line: int, problem: str) -> AgentFileError:
        return AgentFileError(self._file, self._first_line + line, problem)


def _events(text: str) -> Iterator[Event]:
    parsed: Iterator[Event] = yaml.parse(text, Loader=yaml.SafeLoader)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (it has no types)
    yield from parsed


def _line(event: Event) -> int:
    assert event.start_mark is not None, "the parser marks every event"
    return event.start_mark.line


def _resolved(event: ScalarEvent) -> Value:
    text: str = event.value
    # A text in quotes, or in a block, is a text.
    if not event.implicit[0]:
        return text
    if text in WORDS:
        return WORDS[text]
    if WHOLE.fullmatch(text) and len(text) < 19:
        return int(text)
    return float(text) if DECIMAL.fullmatch(text) else text
