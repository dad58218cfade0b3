"""Secrets by reference: a variable says where its value is, instead of the value.

`secret:file:PATH` reads a file, `secret:command:PROGRAM ARGUMENTS` runs a program without a shell,
and `secret:vault:PATH#FIELD` asks the command line of HashiCorp Vault. An orchestrator reads the
references of its environment when it opens; the output of a program is used for five minutes. Only
a person sets the environment: files of agents have no references. An error names the variable and
its reference, never a value.
"""

import os
import selectors
import shlex
import stat
import subprocess
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO, Final

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.redaction.secret_variables import REFERENCE_PREFIX
from orchestrator.agents.sandbox.program_path import own_program

SECONDS: Final = 10
"""The most seconds for a program to print a secret."""
LARGEST: Final = 65_536
"""The most bytes of a secret."""
CACHED_SECONDS: Final = 300
MOST_CACHED: Final = 50
"""The number of outputs that are kept for the orchestrators that this process opens next."""


def resolve_references(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the variables that are references, by name; it blocks.

    Raises:
        DefinitionError: a reference cannot be read.
    """
    references = {name: it for name, it in environ.items() if it.startswith(REFERENCE_PREFIX)}
    others = {name: it for name, it in environ.items() if name not in references}
    values: dict[str, str] = {}
    for name, reference in references.items():
        try:
            values[name] = _read(reference.removeprefix(REFERENCE_PREFIX), others)
        except _UnreadableError as exc:
            raise DefinitionError(f"{name} is {reference!r}, and {exc}") from None
    return values


class _UnreadableError(Exception):
    """A reference cannot be read; the text says why, without any output of a program."""


def _read(reference: str, environ: Mapping[str, str]) -> str:
    kind, _, rest = reference.partition(":")
    match kind:
        case "file":
            raw = _file(Path(rest).expanduser())
        case "command":
            raw = _output(_words(rest), environ)
        case "vault":
            path, _, field = rest.rpartition("#")
            if not (path and field):
                raise _UnreadableError("it names no field: write secret:vault:PATH#FIELD")
            raw = _output(["vault", "kv", "get", f"-field={field}", path], environ)
        case _:
            raise _UnreadableError(f"{kind}: is none of file:, command:, vault:")
    if len(raw) > LARGEST:
        raise _UnreadableError(f"the value has more than {LARGEST:,} bytes")
    try:
        value = raw.decode().strip()
    except UnicodeDecodeError:
        value = "\0"
    if "\0" in value:
        raise _UnreadableError("the value is not text")
    if not value:
        raise _UnreadableError("the value is empty")
    return value


def _file(file: Path) -> bytes:
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise _UnreadableError("this is not a file")
        with file.open("rb") as opened:
            return opened.read(LARGEST + 1)
    except OSError as exc:
        raise _UnreadableError(f"the file cannot be read: {exc.strerror}") from None


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as exc:
        raise _UnreadableError(f"the command cannot be split into words: {exc}") from None
    if not words:
        raise _UnreadableError("it names no program")
    return words


def _output(argv: list[str], environ: Mapping[str, str]) -> bytes:
    period = int(time.monotonic() // CACHED_SECONDS)
    return _cached_output(tuple(argv), frozenset(environ.items()), period)


@lru_cache(maxsize=MOST_CACHED)
def _cached_output(
    argv: tuple[str, ...], variables: frozenset[tuple[str, str]], _period: int
) -> bytes:
    environ = dict(variables)
    # An agent may have written the files of this folder, so it is not used, nor searched.
    program = argv[0] if os.sep in argv[0] else own_program(argv[0], environ)
    if program is None:
        raise _UnreadableError(f"{argv[0]} is not on the path")
    try:
        process = subprocess.Popen(  # noqa: S603 (the person's own program)
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            cwd="/",
        )
    except OSError as exc:
        raise _UnreadableError(f"{argv[0]} cannot be run: {exc.strerror}") from None
    try:
        with process:
            try:
                assert process.stdout is not None
                deadline = time.monotonic() + SECONDS
                output = _read_until(deadline, process.stdout)
                if len(output) <= LARGEST:
                    process.wait(max(0, deadline - time.monotonic()))
            finally:
                process.kill()
    except (TimeoutError, subprocess.TimeoutExpired):
        raise _UnreadableError(f"{argv[0]} took more than {SECONDS} seconds") from None
    if process.returncode and len(output) <= LARGEST:
        raise _UnreadableError(
            f"{argv[0]} ended with {process.returncode}: run it in a terminal to see why"
        )
    return output


def _read_until(deadline: float, pipe: IO[bytes]) -> bytes:
    """Return the output of a program, or a part of it that is too large."""
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(output) <= LARGEST:
            if not selector.select(max(0, deadline - time.monotonic())):
                raise TimeoutError
            part = os.read(pipe.fileno(), LARGEST)
            if not part:
                break
            output += part
    return output
