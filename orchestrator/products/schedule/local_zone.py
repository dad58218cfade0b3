"""The name of the time zone of this machine, which a job without a zone gets for good."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.delegation.schedule import ScheduleError, zone_of

LINK: Final = Path("/etc/localtime")
FOLDER: Final = "zoneinfo/"


def local_zone(environ: Mapping[str, str], link: Path = LINK) -> str:
    """Return what TZ says, else what the machine is set to, else UTC.

    Args:
        environ: the environment.
        link: the file by which the machine names its zone.
    """
    named = environ.get("TZ", "").removeprefix(":")
    try:
        _, _, linked = str(link.resolve()).rpartition(FOLDER)
    except OSError:
        linked = ""
    for name in (named, linked):
        try:
            zone_of(name)
        except ScheduleError:
            continue
        return name
    return "UTC"
