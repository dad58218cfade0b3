"""The state that a product keeps in a session: a struct of its own type, stored as JSON.

The ledger knows no type of a product. It has the fields of each state by the name of the state, and
`SessionRecord.state` makes the struct of them when it is asked for.
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import msgspec

from orchestrator.delegation.errors import UnwritableFactError

T = TypeVar("T")
StateT = TypeVar("StateT", bound="SessionState")
StateFields: TypeAlias = Mapping[str, Any]
"""The fields of a state, as JSON has them."""
StoredStates: TypeAlias = Mapping[str, StateFields]
"""The states of a session, by their names."""
Entries: TypeAlias = Mapping[str, T | None]
"""A field of a state that is changed entry by entry: None removes an entry."""
NO_STATES: Final[StoredStates] = {}
NO_ENTRIES: Final[Mapping[str, Any]] = {}
"""The default of a field of entries. msgspec leaves it out, and copies it for each state."""


class SessionState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state that one product keeps in a session.

    A product derives its own class. Every field has a default: it is the state of a session in
    which the product has stored nothing.
    """

    NAME: ClassVar[str]
    """The name of the state. No other class has the same."""


def store_states(states: Collection[SessionState]) -> StoredStates:
    """Return states as a fact has them, without those that have their default values."""
    if not states:
        return NO_STATES
    return {it.NAME: fields for it in states if (fields := as_json(it))}


def read_state(states: StoredStates, kind: type[StateT]) -> StateT:
    """Return a state from its stored fields; the default one if there are none."""
    fields = states.get(kind.NAME)
    return kind() if fields is None else msgspec.convert(fields, kind)


def as_json(value: object) -> Any:
    """Return a value as JSON has it, as a ledger that is read from the journal has it; raise
    `UnwritableFactError` if JSON cannot carry it.
    """
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, msgspec.MsgspecError) as exc:
        raise UnwritableFactError(f"a state holds what JSON cannot carry: {exc}") from exc


def merge_changes(fields: StateFields, changes: StateFields) -> StateFields:
    """Return the fields of a state after a change. Neither argument is modified."""
    merged = {**fields, **changes}
    for name, change in changes.items():
        if isinstance(change, dict):
            entries: dict[str, Any] = {**fields.get(name, {}), **change}
            merged[name] = {key: entry for key, entry in entries.items() if entry is not None}
    return merged
