"""The secret variables of an environment, by their names and values."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from orchestrator.agents.redaction.named_values import HARMLESS_WORDS, MIN_SECRET_LENGTH
from orchestrator.agents.redaction.redactor import redacted
from orchestrator.agents.redaction.shaped_secrets import LOGIN_IN_URL
from orchestrator.lazy_pattern import lazy_pattern

REFERENCE_PREFIX: Final = "secret:"
"""The start of a value that is a reference to a secret (`secret_references`)."""
MIN_DECLARED_SECRET_LENGTH: Final = 4
"""A declared variable is secret even if its value is short."""


# The words in names of variables that mark a secret.
_SECRET_WORDS: Final = lazy_pattern(
    r"(?:.*(?:PASSWORD|PASSWD|PASSPHRASE|SECRETS?|TOKEN|CREDENTIALS?|APIKEY|ACCESSKEY"
    r"|SECRETKEY|PRIVATEKEY)|KEY|(?:SSH)?PASS|AUTH|PRIVATE|JWT|PAT)"
)
# Anyone who knows such an address may send to it. The headers of a collector contain its key.
_SECRET_ENDS: Final = frozenset(
    [
        *(("WEBHOOK", "URL"), ("SENTRY", "DSN")),
        *((words, "HEADERS") for words in ("OTLP", "TRACES", "METRICS", "LOGS")),
    ]
)
_HARMLESS_ENDS: Final = frozenset(
    [
        *("URL", "URI", "HOST", "PORT", "SOCK", "SOCKET", "FILE", "PATH", "DIR"),
        *("NAME", "USER", "USERNAME", "TYPE", "MODE", "METHOD", "DOMAIN"),
        *("ENDPOINT", "PROVIDER", "ENABLED", "DISABLED", "ID", "TTL", "TIMEOUT"),
        *("EXPIRY", "LENGTH", "SIZE", "LIMIT", "COUNT", "ISSUER", "AUDIENCE"),
        *("SCOPE", "SCOPES", "REGION", "VERSION", "NETWORK", "POLICY"),
    ]
)
_HARMLESS_KEYS: Final = frozenset(
    [
        *("PUBLIC", "PUB", "PUBLISHABLE", "PRIMARY", "CACHE", "SORT", "PARTITION"),
        *("FOREIGN", "HOT"),
    ]
)


def is_secret_variable(name: str, value: str, *, declared: bool = False) -> bool:
    """Return whether a variable is secret: declared so, or by its name or its value."""
    if declared:
        return True
    value = value.strip()
    has_secret_name = (
        _has_secret_name(name) and value.lower() not in HARMLESS_WORDS and not _is_path(value)
    )
    return has_secret_name or redacted(value) != value


def secret_values(environ: Mapping[str, str], declared: Iterable[str] = ()) -> list[str]:
    """Return the secret values of an environment, the longest first.

    Args:
        environ: the variables of this process.
        declared: variables that are secret whatever their names.
    """
    declared = frozenset(declared)
    secrets: set[str] = set()
    for name, value in environ.items():
        bare = value.strip()
        if is_secret_variable(name, bare, declared=name in declared) and not _is_path(bare):
            logins = [found["value"] for found in LOGIN_IN_URL.finditer(bare)]
            # The rest of a URL is not secret.
            is_whole_value = name in declared or (_has_secret_name(name) and not logins)
            parts = [*logins, *map(unquote, logins), *([bare] if is_whole_value else [])]
            shortest = MIN_DECLARED_SECRET_LENGTH if name in declared else MIN_SECRET_LENGTH
            secrets.update(part for part in parts if len(part) >= shortest)
    return sorted(secrets, key=lambda secret: (-len(secret), secret))


def _has_secret_name(name: str) -> bool:
    words = [word for word in re.split(r"[^A-Z]+", name.upper()) if word]
    if words[-3:] == ["ACCESS", "KEY", "ID"] or tuple(words[-2:]) in _SECRET_ENDS:
        return True
    if not words or words[-1] in _HARMLESS_ENDS or not _HARMLESS_KEYS.isdisjoint(words):
        return False
    # `PWD` alone is the working directory of a shell.
    is_password = words[-1] == "PWD" and len(words) > 1
    return is_password or any(map(_SECRET_WORDS.fullmatch, words))


def _is_path(value: str) -> bool:
    """Return whether this names a file: then at most its content is secret."""
    try:
        return value.startswith("/") and Path(value).exists()
    except (OSError, ValueError):
        return False


def has_references(environ: Mapping[str, str]) -> bool:
    """Return whether a variable is a reference to a secret."""
    return any(value.startswith(REFERENCE_PREFIX) for value in environ.values())
