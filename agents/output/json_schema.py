"""Checks an answer against a JSON Schema that a model wrote.

Schema and answer are both untrusted: nothing in them is fetched, takes long, or crashes the
process. Input that would is refused before the library sees it.
"""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast
from urllib.parse import unquote

import msgspec

from orchestrator.agents.errors import DefinitionError

if TYPE_CHECKING:
    import jsonschema_rs

PROBLEMS: Final = 10
CHARACTERS: Final = 100_000
LINE: Final = 300
# The library recurses on the stack of its thread: half a megabyte suffices for a chain of 2,000
# references, and not for 5,000.
MAX_OBJECTS: Final = 2_000
MAX_DEPTH: Final = 100
LEVELS: Final = 500
# Two visits for each of 30 levels are a billion: that takes a minute, or hours.
VISITS: Final = 100_000
VISITS_A_CHARACTER: Final = 4
# Bytes of a compiled regular expression: the cost is its size times the length of a text.
EXPRESSION: Final = 100_000

# Keywords with subschemas: for the same value, and for the values in it.
_SAME: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
_INSIDE: Final = frozenset(
    {
        "items",
        "prefixItems",
        "additionalItems",
        "contains",
        "unevaluatedItems",
        "additionalProperties",
        "patternProperties",
        "unevaluatedProperties",
    }
)
_UNEVALUATED: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})
_NAMED: Final = frozenset({"dependentSchemas", "dependencies", "patternProperties"})


def require_schema(schema: object) -> None:
    """Raise `DefinitionError` if this JSON Schema cannot be used to check answers.

    Without `$schema` it is read as draft 2020-12. It may refer to its own parts only.
    """
    plain = _plain(schema)
    _validator(plain)
    if not _VisitCounter(plain, VISITS).is_bounded(None):
        raise _refused("it leads through its own parts too often or too deep: make it simpler")


def schema_problems(schema: Mapping[str, Any], text: str) -> tuple[str, ...]:
    """Return the problems of a final answer, or raise `DefinitionError` for a wrong schema."""
    plain = _plain(schema)
    validator = _validator(plain)
    try:
        answer = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError) as exc:
        return (f"it is not JSON: {exc}",)
    except RecursionError:
        return (f"it is nested more than {MAX_DEPTH} levels deep",)
    if _is_deeper(answer, MAX_DEPTH):
        return (f"it is nested more than {MAX_DEPTH} levels deep",)
    if not _VisitCounter(plain, VISITS + VISITS_A_CHARACTER * len(text)).is_bounded(answer):
        return (
            "it cannot be checked in reasonable time, because the schema leads through its own"
            " parts too often or too deep: make the answer shorter and less nested",
        )
    with _PanicGuard():
        try:
            errors = list(validator.iter_errors(answer))
        except (ValueError, OverflowError, RecursionError) as exc:
            return (_line(f"it cannot be checked: {exc}"),)
    problems = [_problem(error) for error in errors[:PROBLEMS]]
    if more := len(errors) - len(problems):
        problems.append(f"and {more} more")
    return tuple(problems)


def require_short(schema: Mapping[str, Any]) -> str:
    """Return a schema as text, or raise `DefinitionError` if it is too long."""
    try:
        text = msgspec.json.encode(dict(schema)).decode()
    except RecursionError as exc:
        raise _refused(f"it is nested more than {MAX_DEPTH} levels deep") from exc
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as exc:
        raise _refused(f"it is not JSON: {exc}") from exc
    if len(text) > CHARACTERS:
        raise _refused(
            f"it has {len(text)} characters, and {CHARACTERS} are allowed: leave out"
            " fields that the answer does not need"
        )
    return text


def _plain(schema: object) -> dict[str, Any]:
    """Return a schema as plain JSON values."""
    if not isinstance(schema, Mapping):
        raise _refused(f"a JSON Schema is an object, not {type(schema).__name__}")
    text = require_short(cast("Mapping[str, Any]", schema))
    try:
        plain: dict[str, Any] = msgspec.json.decode(text)
    except RecursionError as exc:
        raise _refused(f"it is nested more than {MAX_DEPTH} levels deep") from exc
    if _is_deeper(plain, MAX_DEPTH):
        raise _refused(f"it is nested more than {MAX_DEPTH} levels deep")
    parts = list(_objects(plain))
    if len(parts) > MAX_OBJECTS:
        raise _refused(f"it has {len(parts)} objects, and {MAX_OBJECTS} are allowed")
    for part in parts:
        _require_own_references(part, is_root=part is plain)
    return plain


def _require_own_references(part: dict[str, Any], *, is_root: bool) -> None:
    ref = part.get("$ref")
    if isinstance(ref, str) and ref != "#" and not ref.startswith("#/"):
        raise _refused(
            f"it refers to {ref!r}, and may refer to its own parts only, by their path:"
            " '#/$defs/name'"
        )
    for keyword in ("$dynamicRef", "$recursiveRef"):
        if isinstance(part.get(keyword), str):
            raise _refused(f"it uses {keyword}: use $ref with the path of a part of it")
    # An $id would change the meaning of '#' below it.
    if not is_root and isinstance(part.get("$id"), str):
        raise _refused("a part of it has an $id: leave that out")
    # In draft 4, `id` does the same.
    if "draft-04" in str(part.get("$schema")):
        raise _refused("it is of draft 4: write it in draft 2020-12")


def _validator(schema: dict[str, Any]) -> "jsonschema_rs.Validator":
    # Imported late: few tasks promise an answer by a schema of their own.
    import jsonschema_rs

    def fetch(uri: str) -> NoReturn:
        raise PermissionError(f"{uri} is not fetched")

    with _PanicGuard():
        try:
            # Not `meta.validate`, which fetches an unknown `$schema`. This engine has no
            # look-around and no back-reference, so it does not backtrack: its time is linear.
            return jsonschema_rs.validator_for(
                schema,
                retriever=fetch,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=EXPRESSION),
            )
        except jsonschema_rs.ValidationError as exc:
            hint = (
                "; regular expressions here are small, without look-around and back-references"
                if exc.message.endswith('is not a "regex"')
                else ""
            )
            raise _refused(f"{_problem(exc)}{hint}") from exc
        except (
            jsonschema_rs.ReferencingError,
            ValueError,
            TypeError,
            OverflowError,
            RecursionError,
        ) as exc:
            raise _refused(str(exc)) from exc


class _PanicGuard:
    """Translates a panic of the library's Rust code, which is no `Exception`."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        # By its name, since it cannot be imported.
        if type(error).__name__ == "PanicException":
            raise _refused(f"the library that reads it failed: {error}") from error


class _VisitCounter:
    """Predicts how often the library will visit a value, and how deep it will recurse.

    It counts each pair of schema and value once and multiplies, where the library repeats each
    path. So it ends soon also where the library would not.
    """

    def __init__(self, root: dict[str, Any], visits: int) -> None:
        self._root = root
        self._visits = visits
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def is_bounded(self, answer: object) -> bool:
        """Return whether the library can check this answer in time."""
        try:
            visits, levels = self._cost(self._root, answer)
        except (_TooManyVisitsError, RecursionError):
            return False
        return visits <= self._visits and levels <= LEVELS

    def _cost(self, schema: object, value: object) -> tuple[int, int]:
        here = _named(schema)
        if not here:
            return 1, 1
        known = self._known
        pair = (id(here), id(value))
        if pair in known:
            return known[pair]
        if len(known) > self._visits:
            raise _TooManyVisitsError
        # A return to this pair while it is counted is a cycle, which the library stops.
        known[pair] = (1, 1)
        visits, levels = _own_cost(here, value), 0
        # To find unevaluated parts, all other keywords are visited up to twice again.
        factor = 3 if here.keys() & _UNEVALUATED else 1
        for part, inner in self._next(here, value):
            more, below = self._cost(part, inner)
            visits += factor * more
            levels = max(levels, below)
        known[pair] = visits, levels + 1
        return known[pair]

    def _next(self, schema: dict[str, Any], value: object) -> Iterable[tuple[object, object]]:
        """Yield the schemas that are visited from here, each with its value."""
        for keyword, given in schema.items():
            if keyword == "$ref":
                yield self._target(given), value
            elif keyword in _SAME:
                yield from product(_schemas(keyword, given), (value,))
            elif keyword in _INSIDE:
                yield from product(_schemas(keyword, given), _inside(value))
            elif keyword == "propertyNames":
                yield from product((given,), _named(value))
            elif keyword == "properties":
                parts, values = _named(given), _named(value)
                for name in parts.keys() & values.keys():
                    yield parts[name], values[name]

    def _target(self, ref: object) -> object:
        found: Any = self._root
        for name in unquote(str(ref)).split("/")[1:]:
            key = name.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(key) if isinstance(found, list) else key]
            except (LookupError, TypeError, ValueError) as exc:
                # The library has resolved it: should we ever differ, refusing is safe.
                raise _refused(f"it refers to {ref!r}, which is not there") from exc
        return found


class _TooManyVisitsError(Exception):
    """The count exceeds its limit."""


def _own_cost(schema: dict[str, Any], value: object) -> int:
    """Return the cost of one visit: 1, and more for long texts and many names."""
    visits = 1 + len(schema.get("enum", ())) // 10
    if isinstance(value, str) and "pattern" in schema:
        visits += len(value) // 100
    if patterns := _named(schema.get("patternProperties")):
        visits += len(patterns) * sum(1 + len(name) // 100 for name in _named(value))
    return visits


def _schemas(keyword: str, given: object) -> Iterable[object]:
    if isinstance(given, list):
        return cast("list[object]", given)
    return _named(given).values() if keyword in _NAMED else (given,)


def _inside(value: object) -> Iterable[object]:
    return cast("list[object]", value) if isinstance(value, list) else _named(value).values()


def _named(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _is_deeper(value: object, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        level = [inner for outer in level for inner in _inside(outer)]
    return any(isinstance(value, dict | list) for value in level)


def _objects(value: object) -> Iterable[dict[str, Any]]:
    waiting = [value]
    while waiting:
        found = waiting.pop()
        waiting.extend(_inside(found))
        if isinstance(found, dict):
            yield cast("dict[str, Any]", found)


def _problem(error: "jsonschema_rs.ValidationError") -> str:
    names = (str(name).replace("~", "~0").replace("/", "~1") for name in error.instance_path)
    return _line(f"/{'/'.join(names)}: {error.message}")


def _line(text: str) -> str:
    if len(text) > LINE:
        half = LINE // 2
        text = f"{text[:half]} ... {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _refused(problem: str) -> DefinitionError:
    return DefinitionError(f"the schema cannot be used: {_line(problem)}")
