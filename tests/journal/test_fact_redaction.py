"""Every text of every fact is searched for secrets: the test finds the texts by the types."""

from collections.abc import Iterator
from typing import Any, TypeAlias, get_args

import msgspec
import pytest
from msgspec import inspect

from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.delegation.events import Event
from orchestrator.kernel.journal.fact_redaction import UNREDACTED_FIELDS, WITHOUT_TEXT, FactRedactor

SECRET = "tulip-4711-garden"

Fields: TypeAlias = tuple[str, ...]

EXAMPLES = {"media_type": "image/png", "url": "https://host/"}
"""The values of fields that cannot be empty."""
KEPT = ("reasoning", "model")
"""The model that has signed a block: one of another name cannot be sent back."""


def plain(kind: inspect.Type) -> Any:  # noqa: C901, PLR0911 (a case a type)
    """Return the smallest value of a type, as JSON has it."""
    match kind:
        case inspect.StructType() | inspect.DataclassType():
            return {
                it.encode_name: EXAMPLES.get(it.name) or plain(it.type)
                for it in kind.fields
                if it.required or it.name in EXAMPLES
            }
        case inspect.EnumType():
            return next(iter(kind.cls)).value
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.UnionType():
            return None if kind.includes_none else plain(kind.types[0])
        case inspect.TupleType():
            return [plain(it) for it in kind.item_types]
        case inspect.CollectionType():
            return []
        case inspect.DictType():
            return {}
        case inspect.BoolType():
            return False
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.StrType() | inspect.BytesType():
            return ""
        case _:
            return None


def with_secret(  # noqa: C901, PLR0912 (a case a type)
    kind: inspect.Type,
) -> Iterator[tuple[Fields, Any]]:
    """Yield values of a type with the secret in one text each, and the fields that lead to it."""
    match kind:
        case inspect.StrType() | inspect.AnyType():
            yield (), SECRET
        case inspect.StructType() | inspect.DataclassType():
            for field in kind.fields:
                for fields, value in with_secret(field.type):
                    text = f"https://host/{SECRET}" if field.name == "url" else value
                    yield (field.name, *fields), plain(kind) | {field.encode_name: text}
        case inspect.UnionType():
            for each in kind.types:
                yield from with_secret(each)
        case inspect.TupleType():
            for index, each in enumerate(kind.item_types):
                for fields, value in with_secret(each):
                    items = plain(kind)
                    items[index] = value
                    yield fields, items
        case inspect.CollectionType():
            for fields, value in with_secret(kind.item_type):
                yield fields, [value]
        case inspect.DictType():
            for fields, value in with_secret(kind.value_type):
                yield fields, {"name": value}
        case _:
            pass


@pytest.mark.parametrize("kind", [it for it in get_args(Event) if it not in WITHOUT_TEXT])
def test_each_text_of_a_fact_is_searched_for_secrets(kind: type[Event]) -> None:
    info = inspect.type_info(kind)
    for fields, value in with_secret(info):
        if UNREDACTED_FIELDS.isdisjoint(fields) and fields[-2:] != KEPT:
            event = msgspec.convert(value, kind, strict=False)
            _, encoded = FactRedactor(Redactor([SECRET])).encode(event)
            assert SECRET.encode() not in encoded.body, ".".join((kind.__name__, *fields))
