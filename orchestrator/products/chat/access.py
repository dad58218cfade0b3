"""Who may talk to the gateway: closed by default."""

from orchestrator.products.chat.pairing_codes import PairingCodes
from orchestrator.products.chat.place import Place
from orchestrator.products.chat.platform import ChatUser
from orchestrator.products.chat.settings import GatewaySettings


def user_key(place: Place, user: ChatUser) -> str:
    """Return a person as settings name them: `PLATFORM:USER`."""
    return f"{place.platform}:{user.id}"


class Access:
    """The people who may talk: those of the settings, and those who were paired."""

    def __init__(self, settings: GatewaySettings, pairing: PairingCodes) -> None:
        self._allowed = frozenset(settings.allow)
        self._blocked = frozenset(settings.block)
        self._pairing = pairing

    def allows(self, user: str) -> bool:
        """Return whether a person may talk, given as `PLATFORM:USER`."""
        if self.blocks(user):
            return False
        return self.is_listed(user) or self._pairing.is_paired(user)

    def blocks(self, user: str) -> bool:
        """Return whether a person never may talk, whatever code they show."""
        return user in self._blocked

    def is_listed(self, user: str) -> bool:
        """Return whether the operator has named a person, who may so invite others."""
        platform, _, _ = user.partition(":")
        return not self._allowed.isdisjoint({user, f"{platform}:*"})
