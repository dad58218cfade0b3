"""The environment of an agent's commands: that of this process, without its secrets.

The redactor decides which variables are secret, so a value is hidden from commands and from texts
alike. Variables that lead to credentials are kept from commands, too: a socket that signs for the
user, a file of logins.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from orchestrator.agents.redaction.secret_variables import is_secret_variable

LEAD_TO_CREDENTIALS: Final = frozenset(
    [
        *("SSH_AUTH_SOCK", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS"),
        *("DOCKER_HOST", "CONTAINER_HOST", "KUBECONFIG", "NETRC", "PGPASSFILE"),
        *("PGSERVICEFILE", "ORCHESTRATOR_JOURNAL"),
    ]
)
"""No secrets, but who uses them acts as the user. They are not handed to commands."""
_MAY_BE_SECRET: Final = re.compile(
    r"(?:\A|_)(?:SK|PSK|CREDS?|COOKIES?|SALT|SEED|SIG|SID|LICENSE)\Z"
    r"|(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|KEY|CREDENTIALS)_FILE\Z",
    re.IGNORECASE,
)
"""Names of values that some programs keep secret. The redactor does not know them: many are short,
and common words."""
NEEDED: Final = frozenset(
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TERM", "TMPDIR"]
)
"""Handed to commands also where only named variables are: without these little works."""


def without_secret_variables(
    environ: Mapping[str, str], *, declared: Iterable[str] = (), hand_on: Iterable[str] = ()
) -> dict[str, str]:
    """Return an environment without its secret variables, and those that lead to credentials.

    Args:
        environ: the variables of this process.
        declared: variables that are secret whatever their names.
        hand_on: variables that commands get all the same.
    """
    declared, hand_on = frozenset(declared), frozenset(hand_on)
    return {
        name: value
        for name, value in environ.items()
        if name in hand_on
        or not (
            name in LEAD_TO_CREDENTIALS
            # A seed or salt of digits makes a test repeatable.
            or (_MAY_BE_SECRET.search(name) and not value.isdecimal())
            or is_secret_variable(name, value, declared=name in declared)
        )
    }


def only_named(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the variables that are named, and those that every program needs."""
    names = NEEDED | frozenset(names)
    return {
        name: value for name, value in environ.items() if name in names or name.startswith("LC_")
    }
