"""Services that a user names in a file: TOML, a table for each name before the colon.

A field that is not known, or a value of another kind, is refused with the name of the file.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import msgspec

from agents.errors import DefinitionError
from agents.models.provider_table import PROVIDERS, Login, Provider, WireProtocol
from agents.models.settings import ModelSettings
from agents.models.settings_rules import (
    CHAT_RULES,
    MESSAGES_RULES,
    RESPONSES_RULES,
    SettingsRules,
)

_RULES: Final[Mapping[WireProtocol, SettingsRules]] = {
    WireProtocol.CHAT: CHAT_RULES,
    WireProtocol.RESPONSES: RESPONSES_RULES,
    WireProtocol.MESSAGES: MESSAGES_RULES,
}


class _Row(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A service as the file has it."""

    url: str | None = None
    like: str | None = None
    """A service that we know, of which this one is another address."""
    protocol: WireProtocol | None = None
    key_variable: str | None = None
    headers: dict[str, str] = {}
    cannot: frozenset[str] = frozenset()


def read_providers(file: Path) -> Mapping[str, Provider]:
    """Return the services of a file, or none if it is not there."""
    try:
        rows = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise DefinitionError(f"{file} cannot be read: {exc}") from exc
    return {name: _provider(file, name, row) for name, row in rows.items()}


def _provider(file: Path, name: str, given: object) -> Provider:
    where = f"{file}: [{name}]"
    try:
        row = msgspec.convert(given, _Row)
    except msgspec.ValidationError as exc:
        raise DefinitionError(f"{where}: {exc}") from exc
    if ":" in name or "|" in name or name in {"local", ""}:
        raise DefinitionError(f"{where}: this cannot be the name of a service")
    if row.like is not None and row.like not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise DefinitionError(f"{where}: like is {row.like!r}, and not one of {known}")
    if row.url is None or not row.url.startswith(("https://", "http://")):
        raise DefinitionError(
            f"{where}: url is {row.url!r}; write the address of a server, such as"
            ' url = "https://llm.example.org/v1"'
        )
    provider = _like(row)
    if row.cannot - attrs.fields_dict(ModelSettings).keys():
        raise DefinitionError(f"{where}: cannot has what is no setting: {row.cannot}")
    return attrs.evolve(
        provider,
        default_url=row.url.rstrip("/").replace("{", "{{").replace("}", "}}"),
        base_url_variable="",
        address={},
        key_variable=row.key_variable or "",
        headers=row.headers,
        settings=attrs.evolve(
            provider.settings, cannot=provider.settings.cannot | row.cannot
        ),
    )


def _like(row: _Row) -> Provider:
    if row.like is not None:
        like = PROVIDERS[row.like]
        return (
            like if row.protocol is None else attrs.evolve(like, protocol=row.protocol)
        )
    protocol = row.protocol or WireProtocol.CHAT
    return Provider(
        protocol=protocol,
        default_url="",
        login=Login.X_API_KEY if protocol is WireProtocol.MESSAGES else Login.BEARER,
        settings=_RULES[protocol],
    )
