"""The settings of a gateway: who may talk, how much, and with which personality.

All of it is optional, in one file: `examples/chat/gateway.toml` shows it whole. Without a file no
person may talk at all.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from orchestrator.agents import DefinitionError

DEFAULT_RATE: Final = 20


class Limits(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What one person may use; None is no limit."""

    messages_per_minute: int | None = DEFAULT_RATE
    usd_per_day: float | None = None
    tokens_per_day: int | None = None


class Profile(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What is different for some people."""

    users: tuple[str, ...] = ()
    """As `PLATFORM:USER`."""
    model: str = ""
    """Takes the address of the agent's own."""
    personality: str = ""
    """The one that they begin with."""
    workspace: str = ""
    """The folder that tools work in."""
    limits: Limits | None = None


NO_PROFILE: Final = Profile()


class GatewaySettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The settings of a gateway."""

    allow: tuple[str, ...] = ()
    """The people who may talk, as `PLATFORM:USER`; `PLATFORM:*` is all of a platform."""
    block: tuple[str, ...] = ()
    """The people who may not, whatever else says so."""
    limits: Limits = Limits()
    personalities: Mapping[str, str] = {}
    """Instructions that people choose with `/personality`, by their names."""
    profiles: Mapping[str, Profile] = {}

    def profile_of(self, user: str) -> Profile:
        """Return the profile of a person, given as `PLATFORM:USER`."""
        found = (it for it in self.profiles.values() if user in it.users)
        return next(found, NO_PROFILE)

    def limits_of(self, user: str) -> Limits:
        """Return the limits of a person, given as `PLATFORM:USER`."""
        return self.profile_of(user).limits or self.limits


NO_SETTINGS: Final = GatewaySettings()


def read_settings(path: Path) -> GatewaySettings:
    """Return the settings of a file.

    Raises:
        DefinitionError: it says what there is not, or names what it does not have.
    """
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=GatewaySettings)
    except OSError as exc:
        raise DefinitionError(f"{path} cannot be read: {exc.strerror}") from exc
    except msgspec.DecodeError as exc:
        raise DefinitionError(f"{path}: {exc}") from exc
    for user in (*found.allow, *found.block, *_users_of(found)):
        if not all(user.partition(":")):
            raise DefinitionError(f"{path}: {user!r} is no person: PLATFORM:USER")
    for name, profile in found.profiles.items():
        if profile.personality not in {"", *found.personalities}:
            raise DefinitionError(
                f"{path}: profile {name} has the personality {profile.personality!r}, which is"
                " not there"
            )
    return found


def _users_of(settings: GatewaySettings) -> list[str]:
    return [user for it in settings.profiles.values() for user in it.users]
