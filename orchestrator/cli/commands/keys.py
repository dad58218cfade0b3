"""`orchestrator keys`: make, list, replace and revoke the keys of a server, while it runs."""

import datetime as dt
import math
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
import msgspec
import trio
from cyclopts import App, Parameter

from orchestrator.agents.tools.terminal.process_tags import TAG_VARIABLE
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import JournalOption, JsonOption, journals_of, server_folder
from orchestrator.cli.terminal.console import Terminal, command, print_hint, print_table
from orchestrator.ports.errors import JournalInUseError
from orchestrator.ports.journals import JournalStore
from orchestrator.products.server.audit import key_change
from orchestrator.products.server.keys.changes import add_key, revoke_key, rotate_key
from orchestrator.products.server.keys.file import FILE, StoredKey, read_keys
from orchestrator.products.server.keys.key import ORDINARY, Key, KeyLimits, Scope

SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
LONGEST_SECONDS: Final = 36_500 * SECONDS["d"]
"""The longest life of a key: later dates could not be shown."""


KeyName = Annotated[str, Parameter(help="The name of the key.")]

keys = App(
    name="keys",
    help="Make, list, replace and revoke the keys of a server. A running server sees it at once.",
)


@keys.command
def add(
    name: str,
    /,
    *,
    owner: str | None = None,
    scope: tuple[Scope, ...] = (),
    expires: str | None = None,
    requests_per_second: float | None = None,
    runs_at_once: int | None = None,
    tokens_per_day: int | None = None,
    dollars_per_day: float | None = None,
    share: float | None = None,
    json: JsonOption = False,
    journal: JournalOption = None,
) -> None:
    """Make a key, and print its token: it is shown only now, and stored nowhere.

    Args:
        name: The name of the key: ci, ann@laptop.
        owner: The owner whose runs it sees and makes; by default an owner with the key's name.
        scope: An action that it allows: run, read, steer, approve, admin; repeat it for several. By
            default run, read and steer.
        expires: The time until it expires: 12h, 30d, 2w. By default never.
        requests_per_second: The most requests per second.
        runs_at_once: The most runs at once.
        tokens_per_day: The most tokens that its runs may use per day.
        dollars_per_day: The most dollars that its runs may cost per day.
        share: The weight of its model calls that wait for a provider; by default 1.
    """
    limits = KeyLimits(
        requests_per_second=requests_per_second,
        runs_at_once=runs_at_once,
        tokens_per_day=tokens_per_day,
        dollars_per_day=dollars_per_day,
        share=share,
    )
    for field, value in attrs.asdict(limits).items():
        if value is not None and not 0 < value < math.inf:
            raise CommandError(f"--{field.replace('_', '-')} is {value}; it must be more than 0")
    now = time.time()
    key, token = add_key(
        _file_to_change(journal),
        name,
        now=now,
        owner=owner,
        scopes=scope or ORDINARY,
        expires=None if expires is None else now + _seconds(expires, "--expires"),
        limits=limits,
    )
    _record("keys.add", name, journal)
    _print_token(key, token, json=json)


@keys.command(name="list")
def list_(*, json: JsonOption = False, journal: JournalOption = None) -> None:
    """List the keys, without their tokens."""
    stored = read_keys(_file(journal))
    if json:
        shown = [_as_json(it.key, tokens=len(_valid_tokens(it))) for it in stored]
        print(msgspec.json.encode(shown).decode())
        return
    console = Terminal()
    if not stored:
        again = command("keys", "add", "NAME", journal=journal)
        print_hint(console, f"there are no keys; make one with: {again}")
        return
    print_table(console, ("key", "owner", "scopes", "made", "ends", "limits"), map(_cells, stored))


@keys.command
def revoke(name: KeyName, /, *, json: JsonOption = False, journal: JournalOption = None) -> None:
    """Revoke a key and all of its tokens: from now on they are refused.

    Its runs go on, and stay its owner's.
    """
    key = revoke_key(_file_to_change(journal), name)
    _record("keys.revoke", name, journal)
    print(msgspec.json.encode(_as_json(key)).decode() if json else f"revoked {name}")


@keys.command
def rotate(
    name: KeyName, /, *, grace: str = "1h", json: JsonOption = False, journal: JournalOption = None
) -> None:
    """Give a key another token, and print it: it is shown only now.

    Args:
        grace: How long the old token stays valid: 0s, 30m, 1h, 7d.
    """
    key, token = rotate_key(
        _file_to_change(journal), name, now=time.time(), grace=_seconds(grace, "--grace")
    )
    _record("keys.change", name, journal)
    _print_token(key, token, json=json)


def _record(action: str, name: str, journal: str | None) -> None:
    """Record a change in the audit, if there are journals, and no server that records it itself."""
    journals = journals_of(journal)
    names = journals.names()
    if not names or any(_has_server(journals.store(it)) for it in names):
        return

    async def record() -> None:
        async with journals.open_free() as held:
            held.journal.append_audit(time.time(), key_change(action, name))
            await held.journal.wait_audited()

    with suppress(JournalInUseError):
        trio.run(record)


def _has_server(store: JournalStore) -> bool:
    """Return whether a server writes a journal: it sees the change of the file, and records it."""
    writer = store.writer()
    if writer is None:
        return False
    process = f"pid {writer.process}"
    with store.open_reader(verify=False) as reader:
        return any(
            row.event.action == "server.start" and row.event.peer == process
            for row in reader.audit().rows
        )


def _file(journal: str | None) -> Path:
    return server_folder(journals_of(journal)) / FILE


def _file_to_change(journal: str | None) -> Path:
    # A fence, not a wall: a process of the same user outside a sandbox can write the file.
    if TAG_VARIABLE in os.environ:
        raise CommandError("a command of an agent makes no keys; run this in a terminal of yours")
    return _file(journal)


def _seconds(text: str, option: str) -> int:
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    if found is None:
        raise CommandError(
            f"{option} is {text!r}; say how long: 30m, 12h, 30d or 2w (minutes, hours, days, weeks)"
        )
    seconds = int(found[1]) * SECONDS[found[2]]
    if seconds > LONGEST_SECONDS:
        raise CommandError(
            f"{option} is {text!r}; the longest is {LONGEST_SECONDS // SECONDS['d']}d"
        )
    return seconds


def _print_token(key: Key, token: str, *, json: bool) -> None:
    if json:
        print(msgspec.json.encode({**_as_json(key), "token": token}).decode())
        return
    # The token alone is on stdout: TOKEN=$(orchestrator keys add ci)
    print(token)
    ends = "" if key.expires is None else f", until {_when(key.expires)}"
    print(
        f"the token of {key.name}, for {_scopes(key)} as {key.owner}{ends}; it is shown only now",
        file=sys.stderr,
    )


def _as_json(key: Key, **more: Any) -> dict[str, Any]:
    shown = {
        "name": key.name,
        "owner": key.owner,
        "scopes": sorted(key.scopes),
        "created": key.created,
        "expires": key.expires,
        "limits": attrs.asdict(key.limits),
    }
    return shown | more


def _cells(it: StoredKey) -> Sequence[str]:
    key = it.key
    ends = "never" if key.expires is None else _when(key.expires)
    if key.expires is not None and key.expires <= time.time():
        ends = f"{ends} (expired)"
    elif len(_valid_tokens(it)) > 1:
        ends = f"{ends} (two tokens until {_when(it.tokens[0].until or 0)})"
    limits = (
        f"{value:g} {name.replace('_', ' ')}"
        for name, value in attrs.asdict(key.limits).items()
        if value is not None
    )
    return (
        *(key.name, key.owner, _scopes(key), _when(key.created), ends),
        ", ".join(limits) or "none",
    )


def _valid_tokens(it: StoredKey) -> list[object]:
    now = time.time()
    return [token for token in it.tokens if token.until is None or token.until > now]


def _scopes(key: Key) -> str:
    return ", ".join(scope for scope in Scope if scope in key.scopes)


def _when(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M}"
