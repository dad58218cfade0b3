"""The settings of a gateway: who may talk, how much, and with which personality.

All settings are optional, in one file: `examples/chat/gateway.toml` shows all of them. Without a
file, no person may talk.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from orchestrator.agents import DefinitionError

DEFAULT_RATE: Final = 20


class Limits(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The limits of one person; None means no limit."""

    messages_per_minute: int | None = DEFAULT_RATE
    usd_per_day: float | None = None
    tokens_per_day: int | None = None


class Profile(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Different settings for some people."""

    users: tuple[str, ...] = ()
    """The people, as `PLATFORM:USER`."""
    model: str = ""
    """Replaces the agent's own model."""
    personality: str = ""
    """The initial personality."""
    workspace: str = ""
    """The folder that tools work in."""
    limits: Limits | None = None


NO_PROFILE: Final = Profile()


class GatewaySettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The settings of a gateway."""

    allow: tuple[str, ...] = ()
    """The people who may talk, as `PLATFORM:USER`; `PLATFORM:*` means everyone on a platform."""
    block: tuple[str, ...] = ()
    """The people who may never talk, even if other settings allow it."""
    limits: Limits = Limits()
    personalities: Mapping[str, str] = {}
    """The instructions that people choose with `/personality`, by name."""
    profiles: Mapping[str, Profile] = {}

    def profile_of(self, user: str) -> Profile:
        """Return the profile of a person (`PLATFORM:USER`)."""
        found = (it for it in self.profiles.values() if user in it.users)
        return next(found, NO_PROFILE)

    def limits_of(self, user: str) -> Limits:
        """Return the limits of a person (`PLATFORM:USER`)."""
        return self.profile_of(user).limits or self.limits


NO_SETTINGS: Final = GatewaySettings()


def read_settings(path: Path) -> GatewaySettings:
    """Return the settings of a file; raise `DefinitionError` for an unknown name in it."""
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
