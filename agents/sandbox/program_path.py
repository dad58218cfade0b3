"""Where a program is that is started by its name.

A folder of the PATH that is relative leads into the folder that a process is in, which may be the
workspace of an agent. So such a folder is passed over.
"""

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_SYSTEM: Final = frozenset({"/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin"})


def program_path(name: str, *, environ: Mapping[str, str], cwd: Path) -> str:
    """Return the absolute path of a program, looked up from `cwd`, or raise `FileNotFoundError`."""
    if os.sep in name:
        found = str(cwd / name)
        is_there = Path(found).exists()
    else:
        searched = environ.get("PATH", os.defpath).split(os.pathsep)
        absolute = os.pathsep.join(filter(os.path.isabs, searched))
        # An empty path would mean the default one.
        found = shutil.which(name, path=absolute or os.devnull) or ""
        is_there = bool(found)
    if not is_there:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return found


def own_program(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the path of a program that this process itself relies on; None if there is none.

    A folder inside the folder of this process, which agents write, is passed over, unless it is one
    of the system.
    """
    environ = os.environ if environ is None else environ
    here = os.path.realpath(os.curdir)
    folders = [
        it
        for it in environ.get("PATH", os.defpath).split(os.pathsep)
        if it in _SYSTEM
        or (Path(it).is_absolute() and not Path(os.path.realpath(it)).is_relative_to(here))
    ]
    return shutil.which(name, path=os.pathsep.join(folders) or os.devnull)
