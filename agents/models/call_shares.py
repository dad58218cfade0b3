"""Members that share a provider: the member with the least service, by its weight, is served next.

A member that comes back has saved nothing: it begins at the service of the member served last. Two
members that both wait never differ by more than the largest call of each.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from orchestrator.agents.models.keyed_heap import FEW, KeyedHeap


class Member:
    """An owner, or a key of an owner."""

    __slots__ = ("name", "service")

    def __init__(self, name: str) -> None:
        self.name = name
        self.service = 0.0
        """The seconds that it was served, each divided by its weight."""


MemberT = TypeVar("MemberT", bound=Member)


class Shares(Generic[MemberT]):
    """The members that share a provider, or the part of it that another member has."""

    __slots__ = ("_make", "_service", "members", "waiting")

    def __init__(self, make: Callable[[str], MemberT]) -> None:
        self._make = make
        self._service = 0.0
        """The service of the member that was served last, before that."""
        self.members: dict[str, MemberT] = {}
        self.waiting: KeyedHeap[MemberT] = KeyedHeap()

    def enter(self, name: str) -> MemberT:
        """Let a member wait for its share, unless it waits; return it."""
        if (member := self.members.get(name)) is None:
            member = self.members[name] = self._make(name)
        if member not in self.waiting:
            member.service = max(member.service, self._service)
            self.waiting.put(member, member.service)
        return member

    def serve(self, member: MemberT, seconds: float) -> None:
        """Count the service of a member that waits."""
        self._service = member.service
        member.service += seconds
        self.waiting.put(member, member.service)

    def leave(self, member: MemberT) -> None:
        """Forget a member that waits no more, unless it has had more than the others by now."""
        self.waiting.remove(member)
        if member.service <= self._service:
            del self.members[member.name]
        elif len(self.members) > FEW + 2 * len(self.waiting):
            self.members = {
                name: it
                for name, it in self.members.items()
                if it in self.waiting or it.service > self._service
            }

    def first(self) -> MemberT | None:
        """Return the member that is served next."""
        found = self.waiting.first()
        return None if found is None else found[2]
