"""The names of places: a place becomes the name of a queue in other programs."""

from typing import Final

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.type_checks import has_type
from orchestrator.lazy_pattern import lazy_pattern

PLACE_NAME: Final = lazy_pattern(r"[a-z0-9][a-z0-9_-]{0,62}")


def require_place_name(place: str, whose: str) -> None:
    """Refuse what cannot be the name of a place."""
    if not (has_type(place, str) and PLACE_NAME.fullmatch(place)):
        raise DefinitionError(
            f"{whose}: {place!r} cannot be the name of a place: a name starts with a letter or a"
            " digit, and has at most 63 of the letters a to z, digits, '-' and '_'"
        )
