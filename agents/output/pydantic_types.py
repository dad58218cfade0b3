"""Types of pydantic: found in a type, validated by pydantic, written as JSON that reads the same.

Pydantic is imported by the program whose types these are. A program without them never imports it.
"""

import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from orchestrator.agents.errors import DefinitionError

if TYPE_CHECKING:
    import pydantic

PROBLEMS: Final = 10
"""How many problems of a value are named."""
OLDEST: Final = (2, 11)
"""The first version that reads fields both by their names and by their aliases."""
_METADATA: Final = frozenset({"pydantic", "pydantic_core", "annotated_types"})
"""The packages whose classes in `Annotated` pydantic alone obeys."""


def has_pydantic_parts(type_: Any) -> bool:
    """Return whether pydantic has to read some part of a type."""
    # A type cannot name a class of a module that was not imported.
    if "pydantic" not in sys.modules and "annotated_types" not in sys.modules:
        return False
    return _has_parts(type_, set())


def _has_parts(type_: Any, seen: set[int]) -> bool:
    if id(type_) in seen:
        return False
    seen.add(id(type_))
    return _is_pydantic(type_) or any(_has_parts(part, seen) for part in _parts_of(type_))


def _is_pydantic(type_: Any) -> bool:
    if get_origin(type_) is Annotated:
        return any(map(_is_metadata, type_.__metadata__))
    origin = get_origin(type_) or type_
    if not isinstance(origin, type):
        return False
    if _belongs_to_msgspec(origin):
        return False
    return any(
        hasattr(origin, name)
        for name in ("__pydantic_core_schema__", "__get_pydantic_core_schema__")
    )


def _is_metadata(metadata: object) -> bool:
    package, _, _ = type(metadata).__module__.partition(".")
    return package in _METADATA or hasattr(metadata, "__get_pydantic_core_schema__")


def _belongs_to_msgspec(class_: type[Any]) -> bool:
    return issubclass(class_, msgspec.Struct) or hasattr(class_, "__attrs_attrs__")


def _parts_of(type_: Any) -> Iterator[Any]:
    if get_origin(type_) is Annotated:
        yield type_.__origin__
        return
    yield from get_args(type_)
    if isinstance(type_, TypeVar):
        return
    if (alias := getattr(type_, "__value__", None)) is not None:
        yield alias
    origin = get_origin(type_) or type_
    if isinstance(origin, type) and getattr(origin, "__annotations__", None):
        try:
            yield from get_type_hints(origin, include_extras=True).values()
        except (NameError, TypeError):
            # The reader of the type describes the problem.
            return


class _PartType(type):
    """The type of markers that stand for a part of a type where msgspec reads the whole."""

    adapter: "pydantic.TypeAdapter[Any]"

    def __instancecheck__(cls, _: object) -> bool:
        # The value is one of the type that the marker stands for.
        return True


def replaced_parts(type_: Any) -> Any:
    """Return a type with markers for the types that pydantic reads, or raise `DefinitionError`."""
    if not has_pydantic_parts(type_):
        return type_
    adapter = _adapter(type_)
    if adapter is not None:
        return _PartType(_marker_name(type_), (), {"adapter": adapter})
    arguments = get_args(type_)
    if not arguments:
        raise DefinitionError(
            f"{getattr(type_, '__name__', type_)} is read by msgspec, and has a field of a type"
            " of pydantic: make it a pydantic model or a dataclass, or make the field one of"
            " neither"
        )
    # The library that reads a generic class gets its arguments, such as `Model` of
    # `Settled[Model]`.
    replaced = tuple(map(replaced_parts, arguments))
    return union_of(replaced) if is_union(type_) else get_origin(type_)[replaced]


def is_union(type_: Any) -> bool:
    """Return whether a type is a union."""
    return get_origin(type_) in {Union, types.UnionType}


def union_of(alternatives: tuple[Any, ...]) -> Any:
    """Return the union of types."""
    return Union[alternatives]  # noqa: UP007 (there is no other way to write it)


def _marker_name(type_: Any) -> str:
    return getattr(type_, "__name__", None) or str(type_)


def _adapter(type_: Any) -> "pydantic.TypeAdapter[Any] | None":
    """Return the reader of a type; None if pydantic knows no way to read it."""
    try:
        # Late: only programs with its types need it.
        import pydantic
    except ImportError as exc:
        raise DefinitionError(
            f"{type_} has constraints that pydantic checks, and it is not installed: pip install"
            " pydantic, or write msgspec.Meta(...)"
        ) from exc
    version = tuple(int(it) for it in pydantic.VERSION.split(".")[:2])
    if version < OLDEST:
        raise DefinitionError(
            f"{type_} needs pydantic {'.'.join(map(str, OLDEST))} or newer, and"
            f" {pydantic.VERSION} is installed"
        )
    try:
        adapter = pydantic.TypeAdapter[Any](type_)
        adapter.rebuild()
    except pydantic.errors.PydanticSchemaGenerationError:
        return None
    except (pydantic.errors.PydanticUserError, NameError) as exc:
        raise DefinitionError(f"pydantic cannot read {type_}: {exc}") from exc
    return adapter


def is_part(type_: Any) -> bool:
    """Return whether a type is a marker."""
    return isinstance(type_, _PartType)


def part_schema(type_: Any) -> dict[str, Any]:
    """Return the JSON schema of a marker's type, with its own definitions."""
    if not isinstance(type_, _PartType):
        raise TypeError(
            f"{getattr(type_, '__name__', type_)} is not a type that JSON can be read as: use a"
            " dataclass, an attrs class, a msgspec.Struct, a TypedDict or a pydantic model"
        )
    import pydantic

    try:
        return type_.adapter.json_schema()
    except pydantic.errors.PydanticUserError as exc:
        raise TypeError(f"pydantic has no JSON schema of {type_.__name__}: {exc.message}") from exc


def read_part(type_: Any, text: str | bytes) -> Any:
    """Read JSON as the type of a marker, or raise `ValueError` with its problems."""
    import pydantic

    try:
        return type_.adapter.validate_json(text, by_alias=True, by_name=True)
    except pydantic.ValidationError as exc:
        raise ValueError(*_problems(exc)) from exc


def convert_part(type_: Any, value: object) -> Any:
    """Read a value that was decoded from JSON (the hook of msgspec's readers)."""
    try:
        # As JSON: a strict model reads a date from a text there, and nowhere else.
        return read_part(type_, msgspec.json.encode(value))
    except ValueError as exc:
        # Msgspec adds where the part is, so the places are those inside it.
        problems = [
            str(it).replace(" - at `$.", " in `").replace(" - at `$", " in `") for it in exc.args
        ]
        raise ValueError("; ".join(problems)) from exc


def _problems(error: "pydantic.ValidationError") -> list[str]:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    problems = [_problem(it["msg"], it["loc"]) for it in errors[:PROBLEMS]]
    if len(errors) > PROBLEMS:
        problems.append(f"and {len(errors) - PROBLEMS} more")
    return problems


def _problem(message: str, where: Sequence[int | str]) -> str:
    path = "".join(f"[{it}]" if isinstance(it, int) else f".{it}" for it in where)
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return f"{message} - at `${path}`" if path else message


def shown_part(value: object) -> Any:
    """Return a value of pydantic's as models and people are shown it: by alias, and computed."""
    pydantic_core = _required_core(value)
    try:
        return pydantic_core.to_jsonable_python(value, by_alias=True)
    except pydantic_core.PydanticSerializationError as exc:
        raise TypeError(str(exc)) from exc


def _required_core(value: object) -> Any:
    # It would write other types in a form that is not read back as the same value.
    if not _is_pydantic(type(value)):
        raise TypeError(f"{type(value).__name__} is not a type that JSON can be made of")
    return sys.modules["pydantic_core"]


def plain_part(value: object) -> Any:
    """Return the plain data of a pydantic value (the hook of msgspec's writers)."""
    pydantic_core = _required_core(value)
    try:
        dump: Callable[..., Any] | None = getattr(value, "model_dump", None)
        if dump is None:
            return pydantic_core.to_jsonable_python(value)
        # By name, since a field is always read by its name, and not always by its alias.
        dump = partial(dump, by_alias=False, round_trip=True)
        return _in_order(dump(mode="json"), dump())
    except pydantic_core.PydanticSerializationError as exc:
        raise TypeError(str(exc)) from exc


def plain_value(type_: Any, value: object) -> Any:
    """Return a value of a marker's type as JSON data; raise `TypeError` for another type."""
    import pydantic_core

    dump = partial(type_.adapter.dump_python, by_alias=False, round_trip=True, warnings="error")
    try:
        return _in_order(dump(value, mode="json"), dump(value))
    except pydantic_core.PydanticSerializationError as exc:
        raise TypeError(str(exc)) from exc


def _in_order(plain: object, value: object) -> object:
    """Return plain data with its sets, as `value` has them, in the same order in every process."""
    unchanged = plain
    if isinstance(plain, list):
        parts = cast("list[object]", plain)
        if isinstance(value, set | frozenset):
            return _sorted(map(_sorted_inside, parts))
        if isinstance(value, list | tuple):
            values = cast("Sequence[object]", value)
            return [_in_order(*pair) for pair in zip_longest(parts, values)][: len(parts)]
    if isinstance(plain, dict) and isinstance(value, dict):
        values_by_key = cast("dict[object, object]", value).items()
        by_key = {str(key): of for key, of in values_by_key}
        items = cast("dict[str, object]", plain).items()
        return {key: _in_order(part, by_key.get(key)) for key, part in items}
    return unchanged


def _sorted_inside(plain: object) -> object:
    """Return an item of a set; its lists may be sets, too."""
    return _sorted(cast("list[object]", plain)) if isinstance(plain, list) else plain


def _sorted(values: Iterable[object]) -> list[object]:
    return sorted(values, key=msgspec.json.encode)
