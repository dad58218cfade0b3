"""Discord events become messages, or are ignored."""

from typing import Any

import pytest
import trio

from orchestrator.chat import Attachment, Button, ChatAddress, GoneError
from orchestrator.products.chat.discord import platform
from tests.chat.discord_kit import Connected, connected
from tests.chat.fakes.discord import ADA, BOB, BOT, DIRECT, GENERAL, OTHER_BOT, THREAD


async def heard_texts(chat: Connected) -> list[str]:
    """Return what was heard after all that was said is handled."""
    await chat.fake.wait_handled()
    return chat.inbox.texts


async def test_a_private_message_is_received_with_its_author() -> None:
    async with connected() as chat:
        said = await chat.fake.say("hello")
        await chat.inbox.wait_events(1)
        (heard,) = chat.inbox.messages
        assert heard.text == "hello"
        assert heard.address == ChatAddress("discord", DIRECT)
        assert heard.is_private
        assert heard.is_addressed
        assert (heard.user.id, heard.user.name) == (ADA, "Ada")
        assert heard.id == heard.anchor == said.id


async def test_in_a_channel_only_mentions_and_replies_are_received() -> None:
    async with connected() as chat:
        await chat.platform.send(
            ChatAddress("discord", GENERAL), chat.platform.split("I am here")[0], key="k"
        )
        (own,) = chat.fake.sent(GENERAL)
        other = await chat.fake.say("among us", channel=GENERAL)
        await chat.fake.say("so it is", channel=GENERAL, reply_to=other.id)
        await chat.fake.say("@everyone look", channel=GENERAL)
        await chat.fake.say(f"<@{BOB}> look", channel=GENERAL)
        await chat.fake.say(f"<@!{BOT}> one", channel=GENERAL)
        await chat.fake.say("two", channel=GENERAL, reply_to=own.id)
        assert await heard_texts(chat) == ["one", "two"]
        assert {it.address for it in chat.inbox.messages} == {ChatAddress("discord", GENERAL)}
        assert not any(it.is_private for it in chat.inbox.messages)
        assert chat.inbox.messages[0].chat_name == "general"


async def test_a_thread_is_an_address_of_its_channel_and_all_of_it_is_read() -> None:
    async with connected() as chat:
        await chat.fake.say(f"<@{BOT}> begin", channel=THREAD)
        await chat.fake.say("go on", channel=THREAD, by=BOB)
        assert await heard_texts(chat) == ["begin", "go on"]
        assert {it.address for it in chat.inbox.messages} == {
            ChatAddress("discord", GENERAL, THREAD)
        }
        assert [it.is_addressed for it in chat.inbox.messages] == [True, False]
        asked = [it for it in chat.fake.calls if it.path == f"/channels/{THREAD}"]
        assert len(asked) == 1, "a channel is asked for once"


async def test_messages_of_bots_webhooks_and_notices_are_ignored() -> None:
    async with connected() as chat:
        await chat.fake.say("I am a bot", by=OTHER_BOT)
        await chat.fake.say("I am the bot", by=BOT)
        await chat.fake.say("I am a webhook", webhook_id="1")
        await chat.fake.say("Ada has pinned a message", type=6)
        await chat.fake.say("a thread was begun", type=18)
        await chat.fake.say("   ")
        await chat.fake.say(f"<@{BOT}>", channel=GENERAL)
        await chat.fake.say("I am a person")
        assert await heard_texts(chat) == ["I am a person"]


async def test_mentions_are_names() -> None:
    async with connected() as chat:
        await chat.fake.say(f"<@{BOT}> ask <@{BOB}> of <@404>", channel=GENERAL)
        assert await heard_texts(chat) == ["ask @Bob of <@404>"]


async def test_a_message_without_text_is_described_in_words() -> None:
    forwarded: dict[str, Any] = {
        "message_reference": {"type": 1, "message_id": "1", "channel_id": GENERAL},
        "message_snapshots": [{"message": {"content": "old news", "attachments": []}}],
    }
    async with connected() as chat:
        await chat.fake.say("", sticker_items=[{"name": "Wave", "id": "1"}])
        await chat.fake.say("", poll={"question": {"text": "Tea?"}, "answers": []})
        await chat.fake.say("", **forwarded)
        await chat.fake.say("see", **forwarded)
        assert await heard_texts(chat) == [
            "[Sticker: Wave]",
            "[Poll: Tea?]",
            "[Forwarded] old news",
            "see\n[Forwarded] old news",
        ]


async def test_an_edited_message_is_ignored() -> None:
    async with connected() as chat:
        said = await chat.fake.say("hello")
        for session in chat.fake._sessions.values():
            changed = chat.fake.message_object(said) | {"content": "hello!"}
            chat.fake._dispatch(session, "MESSAGE_UPDATE", changed)
        await chat.fake.say("bye")
        assert await heard_texts(chat) == ["hello", "bye"]


async def test_a_message_of_a_channel_that_the_bot_may_not_read_is_reported() -> None:
    async with connected() as chat:
        chat.fake.fail("GET /channels/{}", status=403, code=50001)
        await chat.fake.say(f"<@{BOT}> hello", channel=GENERAL)
        await chat.inbox.wait_reports(1)
        assert "50001" in chat.inbox.reports[0]


async def test_a_channel_is_asked_for_until_discord_answers() -> None:
    async with connected() as chat:
        for fault in ({"status": 503}, {"lost": "before"}, {"lost": "after"}):
            chat.fake.fail("GET /channels/{}", **fault)
        chat.fake.fail("GET /channels/{}", status=429, retry_after=3.0)
        await chat.fake.say("hello")
        assert await heard_texts(chat) == ["hello"]


async def test_files_come_with_their_names_and_sizes() -> None:
    async with connected() as chat:
        await chat.fake.say("look", files={"../a.txt": b"one", "b.txt": b"three"})
        await chat.inbox.wait_events(1)
        first, second = chat.inbox.messages[0].attachments
        assert (first.name, first.size, first.media_type) == ("../a.txt", 3, "text/plain")
        assert await chat.platform.download(second) == b"three"


async def test_files_are_fetched_from_discord_alone_and_without_the_token() -> None:
    """The fake notes a violation if a host of files is given the token."""
    async with connected() as chat:
        for url in (
            "https://evil.example/a",
            "https://cdn.discordapp.com.evil.example/a",
            "file:///etc/passwd",
            "https://evil.example@127.0.0.1.evil.example/",
            "",
        ):
            with pytest.raises(GoneError, match="hosts for files"):
                await chat.platform.download(Attachment(name="a", reference=url))


async def test_a_file_larger_than_announced_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "LARGEST_DOWNLOAD", 1000)
    async with connected() as chat:
        await chat.fake.say("look", files={"a": b"x" * 1001, "b": b"x" * 1000})
        await chat.inbox.wait_events(1)
        large, fitting = chat.inbox.messages[0].attachments
        with pytest.raises(GoneError, match="more than 1000 bytes"):
            await chat.platform.download(large)
        assert len(await chat.platform.download(fitting)) == 1000


async def test_downloading_a_missing_file_raises_gone() -> None:

    async with connected() as chat:
        said = await chat.fake.say("look", files={"a": b"x"})
        await chat.inbox.wait_events(1)
        (attachment,) = chat.inbox.messages[0].attachments
        del chat.fake.messages[said.id]
        with pytest.raises(GoneError, match="404"):
            await chat.platform.download(attachment)


@pytest.mark.parametrize("is_handled_late", [False, True])
async def test_a_press_is_acknowledged_within_three_seconds(*, is_handled_late: bool) -> None:
    """Also if the journal is slow: Discord tells the person otherwise that it failed."""
    async with connected() as chat:
        shown = await _buttons(chat)
        if is_handled_late:
            chat.inbox.gate = trio.Event()
        began = trio.current_time()
        id_ = await chat.fake.press(shown, "Approve")
        await chat.fake.wait_until(lambda: chat.fake.is_acknowledged(id_))
        assert trio.current_time() - began < 3
        chat.inbox.gate.set()
        await chat.inbox.wait_events(1)
        (press,) = chat.inbox.presses
        assert (press.data, press.message, press.user.id) == ("yes", shown.id, ADA)
        await chat.platform.answer_press(press, "Approved *it*")
        assert chat.fake.whispers == [(ADA, r"Approved \*it\*")]


async def test_the_answer_to_a_press_is_its_acknowledgement() -> None:
    """The gateway may answer before it has returned that the press is durable."""
    async with connected() as chat:
        shown = await _buttons(chat)
        take = chat.inbox.receive

        async def receive(event: Any) -> None:
            await chat.platform.answer_press(event, "Approved")
            await take(event)

        chat.inbox.receive = receive  # type: ignore[method-assign]
        await chat.fake.press(shown, "Approve")
        await chat.inbox.wait_events(1)
        await chat.fake.wait_handled()
        assert chat.fake.whispers == [(ADA, "Approved")]
        answers = [it for it in chat.fake.calls if it.path.startswith("/interactions")]
        assert [it.body["type"] for it in answers] == [4]


async def test_a_press_that_cannot_be_answered_is_still_received() -> None:
    async with connected() as chat:
        shown = await _buttons(chat)
        chat.fake.fail("POST /interactions/{}/{}/callback", status=404, code=10062)
        await chat.fake.press(shown, "Deny", by=BOB)
        await chat.inbox.wait_events(1)
        await chat.platform.answer_press(chat.inbox.presses[0], "too late")
        assert chat.fake.whispers == []
        assert chat.fake.connections == 1


async def _buttons(chat: Connected) -> Any:

    buttons = [Button("Approve", "yes"), Button("Deny", "no")]
    sent = await chat.platform.send_buttons(
        ChatAddress("discord", GENERAL), "May it?", buttons, key="question"
    )
    return chat.fake.messages[sent.id]
