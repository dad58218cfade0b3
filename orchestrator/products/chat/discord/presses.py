"""Presses of buttons: each is answered once, within the three seconds that Discord waits.

The first answer goes to the interaction itself: a sentence for the person who pressed, or only an
acknowledgement. Later texts follow it.
"""

from contextlib import suppress
from typing import Final

import trio

from orchestrator.agents import raising_one_error
from orchestrator.products.chat.discord.api import DiscordApi
from orchestrator.products.chat.discord.channels import address_of
from orchestrator.products.chat.discord.markup import plain
from orchestrator.products.chat.discord.objects import Channel, Interaction
from orchestrator.products.chat.errors import ChatError, RefusedError
from orchestrator.products.chat.platform import ButtonPress, ChatUser, Inbox

BUTTON_PRESS: Final = 3
"""The type of an interaction with a part of a message."""
SECONDS: Final = 2
"""The seconds after which a press is acknowledged, even if it is not handled yet."""


class Presses:
    """The presses that Discord waits for."""

    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self._unanswered: set[str] = set()

    async def receive(self, interaction: Interaction, press: ButtonPress, inbox: Inbox) -> None:
        """Give a press to the inbox, and acknowledge it unless the inbox has answered it."""
        self._unanswered.add(interaction.id)
        try:
            with raising_one_error():
                # Owns the acknowledgement that does not wait for the inbox.
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._acknowledge_in_time, interaction)
                    await inbox.receive(press)
                    nursery.cancel_scope.cancel(reason="the press was received")
            await self._acknowledge(interaction)
        finally:
            self._unanswered.discard(interaction.id)

    async def answer(self, press: ButtonPress, text: str) -> None:
        """Tell the result of a press to the person who pressed, and to no other person."""
        await trio.lowlevel.checkpoint()
        application, _, token = press.answer.partition("/")
        # The press was heard, even if it is too old to be answered.
        with suppress(RefusedError):
            if press.id in self._unanswered:
                self._unanswered.remove(press.id)
                await self._api.answer_press(press.id, token, plain(text))
            else:
                await self._api.follow_press(application, token, plain(text))

    async def _acknowledge_in_time(self, interaction: Interaction) -> None:
        await trio.sleep(SECONDS)
        await self._acknowledge(interaction)

    async def _acknowledge(self, interaction: Interaction) -> None:
        await trio.lowlevel.checkpoint()
        if interaction.id in self._unanswered:
            self._unanswered.remove(interaction.id)
            # If this fails, the person reads an error and presses again: the first press counts.
            with suppress(ChatError):
                await self._api.acknowledge_press(interaction.id, interaction.token)


def button_press(interaction: Interaction, channel: Channel) -> ButtonPress | None:
    """Return the press of a button; None for any other interaction."""
    user = interaction.member.user if interaction.member else interaction.user
    if interaction.type != BUTTON_PRESS or user is None or interaction.data is None:
        return None
    return ButtonPress(
        id=interaction.id,
        address=address_of(channel),
        user=ChatUser(user.id, user.name),
        data=interaction.data.custom_id,
        message=interaction.message.id if interaction.message else "",
        is_private=channel.is_direct,
        answer=f"{interaction.application_id}/{interaction.token}",
    )
