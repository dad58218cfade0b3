"""The gateway of Discord: what is heard, and that nothing is lost or heard before it is durable."""

from orchestrator.chat import Place
from tests.chat.discord_kit import connected
from tests.chat.fakes.discord import (
    ADA,
    DIRECT,
)


async def test_a_private_message_is_heard() -> None:
    async with connected() as chat:
        said = await chat.fake.say("hello")
        await chat.inbox.wait_events(1)

        (heard,) = chat.inbox.messages
        assert heard.text == "hello"
        assert heard.place == Place("discord", DIRECT)
        assert heard.is_private
        assert heard.is_addressed
        assert (heard.user.id, heard.user.name) == (ADA, "Ada")
        assert heard.id == heard.anchor == said.id
