"""Services that a user names in a file: TOML, a table for each name before the colon.

A field that is not known, or a value of another kind, is refused with the name of the file.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import attrs

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.models import settings_rules
from orchestrator.agents.models.model import Price
from orchestrator.agents.models.provider_table import PROVIDERS, Login, Provider, WireProtocol
from orchestrator.agents.models.settings import ModelSettings
from orchestrator.agents.nearest_name import did_you_mean

_RULES: Final[Mapping[WireProtocol, settings_rules.SettingsRules]] = {
    WireProtocol.CHAT: settings_rules.CHAT_RULES,
    WireProtocol.RESPONSES: settings_rules.RESPONSES_RULES,
    WireProtocol.MESSAGES: settings_rules.MESSAGES_RULES,
}


TEXTS: Final = ("url", "like", "protocol", "key_variable")
CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "like": tuple(PROVIDERS),
    "protocol": tuple(WireProtocol),
}
PRICES: Final = frozenset({"input", "output", "cached", "cache_write"})
KEY_NAMES: Final = frozenset({"key", "api_key", "apikey", "token"})
EXAMPLES: Final = {
    "headers": '{ "x-team" = "red" }',
    "cannot": '["seed"]',
    "price": "{ input = 0.5, output = 1.5 }",
}


def _protocol(given: str | None) -> WireProtocol | None:
    return None if given is None else WireProtocol(given)


def _price(given: Mapping[str, Any] | None) -> Price | None:
    return None if given is None else Price(**given)


@attrs.frozen(kw_only=True)
class _Row:
    """A service as the file has it."""

    url: str = ""
    like: str | None = None
    """A known service whose protocol this address speaks."""
    protocol: WireProtocol | None = attrs.field(default=None, converter=_protocol)
    key_variable: str = ""
    headers: Mapping[str, str] = {}
    cannot: Sequence[str] = ()
    price: Price | None = attrs.field(default=None, converter=_price)


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
    if not isinstance(given, dict):
        raise DefinitionError(
            f"{file}: {name!r} is in no table: write it below the name of a service, such as [lab]"
        )
    if ":" in name or "|" in name or name in {"local", ""}:
        raise DefinitionError(f"{where}: this cannot be the name of a service")
    fields = cast("dict[str, Any]", given)
    for key, value in fields.items():
        if problem := _problem(key, value):
            raise DefinitionError(f"{where}: {problem}")
    row = _Row(**fields)
    if not row.url.startswith(("https://", "http://")):
        is_url = f"its url is {row.url!r}" if row.url else "it has no url"
        raise DefinitionError(
            f"{where}: {is_url}; write the address of a server, such as"
            ' url = "https://llm.example.org/v1"'
        )
    provider = _like(row)
    return attrs.evolve(
        provider,
        default_url=row.url.rstrip("/").replace("{", "{{").replace("}", "}}"),
        base_url_variable="",
        address={},
        key_variable=row.key_variable,
        headers=row.headers,
        price=row.price,
        settings=attrs.evolve(provider.settings, cannot=provider.settings.cannot.union(row.cannot)),
    )


def _problem(key: str, value: object) -> str | None:  # noqa: PLR0911 (a case a key)
    """Return the problem of a line of a service, if there is one."""
    known = [field.name for field in attrs.fields(_Row)]
    if key in KEY_NAMES:
        return (
            f"it has {key!r}, and keys are never in this file: name the environment variable that"
            ' has it, such as key_variable = "LAB_KEY"'
        )
    if key not in known:
        return f"a service has no {key!r}; {did_you_mean(key, known)}"
    if key in TEXTS:
        if not isinstance(value, str):
            return f'{key} is a text, in quotes, such as {key} = "..."'
        if key in CHOICES and value not in CHOICES[key]:
            return f"{key} is {value!r}; {did_you_mean(value, CHOICES[key])}"
        return None
    if not _is_kind(key, value):
        return f"{key} is not written like this: {key} = {EXAMPLES[key]}"
    settings = attrs.fields_dict(ModelSettings)
    for name in cast("list[str]", value) if key == "cannot" else ():
        if name not in settings:
            return f"cannot has {name!r}, which is no setting; {did_you_mean(name, settings)}"
    return None


def _is_kind(key: str, value: object) -> bool:
    """Return whether the value of a key that is no text has its form."""
    match key, value:
        case "headers", dict():
            return all(isinstance(it, str) for it in cast("dict[str, object]", value).values())
        case "cannot", list():
            return all(isinstance(it, str) for it in cast("list[object]", value))
        case "price", dict():
            price = cast("dict[str, object]", value)
            return {"input", "output"} <= price.keys() <= PRICES and all(
                isinstance(it, int | float) and not isinstance(it, bool) and 0 <= it < math.inf
                for it in price.values()
            )
        case _:
            return False


def _like(row: _Row) -> Provider:
    if row.like is not None:
        like = PROVIDERS[row.like]
        return like if row.protocol is None else attrs.evolve(like, protocol=row.protocol)
    protocol = row.protocol or WireProtocol.CHAT
    return Provider(
        protocol=protocol,
        default_url="",
        login=Login.X_API_KEY if protocol is WireProtocol.MESSAGES else Login.BEARER,
        settings=_RULES[protocol],
    )
