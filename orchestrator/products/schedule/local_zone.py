"""The name of this machine's time zone, which a job without a zone keeps for good."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.delegation.schedule import ScheduleError, zone_of

LINK: Final = Path("/etc/localtime")
FOLDER: Final = "zoneinfo/"


def local_zone(environ: Mapping[str, str], link: Path = LINK) -> str:
    """Return the zone in the variable TZ, else the zone of the machine, else UTC."""
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
