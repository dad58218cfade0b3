"""Messages to Discord go to the right address, once, and ping no person."""

from typing import Any

import httpx2
import pytest
import trio

from orchestrator.chat import (
    Button,
    ChatAddress,
    GoneError,
    NotSentError,
    RefusedError,
    RetryAfterError,
    RevokedError,
    Sent,
    TextPart,
)
from orchestrator.products.chat.discord import DiscordPlatform, open_discord
from orchestrator.products.chat.discord.api import UnreachableError, _translated_errors
from tests.chat.discord_kit import open_platform
from tests.chat.fakes import discord_bodies
from tests.chat.fakes.discord import ADA, DIRECT, GENERAL, THREAD, TOKEN

PRIVATE = ChatAddress("discord", DIRECT)
CHANNEL = ChatAddress("discord", GENERAL)
IN_THREAD = ChatAddress("discord", GENERAL, THREAD)
MESSAGES = "POST /channels/{}/messages"


async def send(
    platform: DiscordPlatform,
    text: str = "hello",
    address: ChatAddress = PRIVATE,
    key: str = "one",
    **more: Any,
) -> Sent:
    return await platform.send(address, TextPart(text), key=key, **more)


async def test_each_address_gets_its_own_messages_anchored() -> None:
    async with open_platform() as (fake, platform):
        for number, address in enumerate((PRIVATE, CHANNEL, IN_THREAD)):
            channel = address.thread or address.chat
            said = fake.write("hello", channel=channel)
            sent = await send(platform, address=address, key=str(number), anchor=said.id)
            (shown,) = fake.sent(channel)
            assert (shown.id, shown.reply_to, sent.changed) == (sent.id, said.id, "")


async def test_text_of_a_model_pings_no_person_and_fetches_no_page() -> None:
    text = f"@everyone @here <@{ADA}> <@&{GENERAL}> https://evil.example/?q=secret"
    async with open_platform() as (fake, platform):
        said = fake.write("hello")
        await send(platform, text, anchor=said.id)
        await platform.send_buttons(PRIVATE, text, [Button("Yes", "y")], key="two")
        await platform.send_file(PRIVATE, "a.txt", b"a", key="three")
        assert [it.pings for it in fake.sent()] == [set(), set(), set()]
        assert all(it.flags == 1 << 2 for it in fake.sent())


async def test_a_deleted_anchor_is_left_out_by_discord() -> None:
    async with open_platform() as (fake, platform):
        await send(platform, anchor="1234")
        assert fake.sent()[0].reply_to == ""


async def test_a_refused_anchor_is_omitted_and_reported() -> None:
    async with open_platform() as (fake, platform):
        notice = fake.write("Ada has joined", type=7)
        sent = await send(platform, anchor=notice.id)
        assert sent.changed == "the anchor"
        assert len(fake.sent()) == 1


async def test_a_missing_thread_is_omitted_and_reported() -> None:
    async with open_platform() as (fake, platform):
        del fake.channels[THREAD]
        sent = await send(platform, address=IN_THREAD, anchor="77")
        assert sent.changed == "the thread"
        assert len(fake.sent(GENERAL)) == 1


@pytest.mark.parametrize(
    ("status", "code"), [(403, 50001), (403, 50007), (403, 50013), (404, 10003), (400, 50083)]
)
async def test_a_chat_that_refuses_messages_is_given_up(status: int, code: int) -> None:
    async with open_platform() as (fake, platform):
        refusal = discord_bodies.RefusedError(status, code, "no")
        fake.channels[DIRECT].refusal = refusal
        with pytest.raises(GoneError, match=str(code)):
            await send(platform)


async def test_a_network_block_is_not_a_missing_chat() -> None:
    async with open_platform() as (fake, platform):
        fake.fail(MESSAGES, status=403, code=0)
        with pytest.raises(RefusedError):
            await send(platform)


async def test_a_revoked_token_raises_revoked() -> None:
    async with open_platform() as (fake, platform):
        fake.token = "another"
        with pytest.raises(RevokedError, match="token"):
            await send(platform)


async def test_a_lost_answer_does_not_duplicate_the_message() -> None:
    """Discord knows the message by its nonce. The mark of a repetition is not needed then."""
    async with open_platform() as (fake, platform):
        fake.fail(MESSAGES, lost="after", times=2)
        first = await send(platform)
        again = await send(platform, mark="(sent again)")
        assert first.id == again.id
        assert fake.texts() == ["hello"]


async def test_after_some_minutes_a_repetition_is_another_message_and_marked() -> None:
    async with open_platform() as (fake, platform):
        await send(platform)
        await trio.sleep(600)
        await send(platform, mark="(sent again)")
        assert fake.texts() == ["hello", "(sent again)\nhello"]


async def test_other_keys_are_other_messages() -> None:
    async with open_platform() as (fake, platform):
        for number in range(3):
            await send(platform, key=f"session/1/{number}")
        assert len(fake.sent()) == 3
        assert all(len(str(it.nonce)) <= 25 for it in fake.sent())


async def test_an_outage_leaves_open_whether_a_message_was_taken() -> None:
    async with open_platform() as (fake, platform):
        fake.fail(MESSAGES, status=503, times=3)
        with pytest.raises(UnreachableError) as caught:
            await send(platform)
        assert not isinstance(caught.value, NotSentError)
        await send(platform)
        assert fake.texts() == ["hello"]


async def test_an_unreachable_network_raises_not_sent() -> None:
    async with open_discord(TOKEN, url="http://127.0.0.1:9/api/v10") as platform:
        with pytest.raises(NotSentError) as caught:
            await send(platform)
    assert "127.0.0.1" not in str(caught.value)


async def test_a_bucket_that_is_empty_is_waited_for_and_not_tried() -> None:
    """The fake notes a violation if a call is made that it has to refuse."""
    async with open_platform() as (fake, platform):
        sent, waits, began = 0, 0, trio.current_time()
        while sent < 12:
            try:
                await send(platform, key=str(sent))
                sent += 1
            except RetryAfterError as exc:
                waits += 1
                await trio.sleep(exc.seconds)
        assert (len(fake.sent()), waits) == (12, 2)
        assert trio.current_time() - began <= 10


async def test_each_channel_has_a_bucket_of_its_own() -> None:
    async with open_platform() as (fake, platform):
        for number in range(5):
            await send(platform, key=str(number))
        with pytest.raises(RetryAfterError):
            await send(platform, key="6")
        await send(platform, address=CHANNEL, key="7")
        assert len(fake.sent(GENERAL)) == 1


async def test_a_rate_limited_channel_waits_as_long_as_discord_says() -> None:
    async with open_platform() as (fake, platform):
        fake.fail(MESSAGES, status=429, retry_after=30.5)
        with pytest.raises(RetryAfterError) as caught:
            await send(platform)
        assert caught.value.seconds == 30.5
        calls = len(fake.calls)
        await trio.sleep(30)
        with pytest.raises(RetryAfterError) as caught:
            await send(platform)
        assert caught.value.seconds == pytest.approx(0.5)
        assert len(fake.calls) == calls
        await send(platform, address=CHANNEL, key="elsewhere")
        await trio.sleep(1)
        await send(platform)


@pytest.mark.parametrize("is_json", [True, False])
async def test_a_global_limit_keeps_all_silent(*, is_json: bool) -> None:
    async with open_platform() as (fake, platform):
        if is_json:
            fake.fail(MESSAGES, status=429, retry_after=9.0, is_global=True)
        else:
            fake.fail(MESSAGES, status=429, retry_after=9.0, is_html=True)
        with pytest.raises(RetryAfterError):
            await send(platform)
        with pytest.raises(RetryAfterError):
            await send(platform, address=CHANNEL)
        await platform.show_typing(CHANNEL)
        assert fake.typed == []


async def test_show_typing_never_waits_and_never_fails() -> None:
    typing = "POST /channels/{}/typing"
    async with open_platform() as (fake, platform):
        for fault in ({"status": 500}, {"status": 403}, {"lost": "before"}):
            fake.fail(typing, **fault)
            await platform.show_typing(PRIVATE)
        fake.fail(typing, status=429, retry_after=600.0)
        began = trio.current_time()
        for _ in range(3):
            await platform.show_typing(PRIVATE)
        assert trio.current_time() == began
        await platform.show_typing(CHANNEL)
        assert fake.typed == [GENERAL]


async def test_the_text_of_buttons_is_escaped_and_cut() -> None:
    async with open_platform() as (fake, platform):
        text = "run *rm* [x](https://evil.example) `ls`\n# not a title\n- no list"
        many = [Button(f"{number}" * 100, f"data:{number}") for number in range(7)]
        sent = await platform.send_buttons(CHANNEL, text, many, key="a")
        (shown,) = fake.sent()
        assert shown.content.replace("\\", "") == text
        for mark in ("*", "`", "[", "]"):
            assert f"\\{mark}" in shown.content
        assert "\\# not" in shown.content
        assert [len(it["components"]) for it in shown.components] == [5, 2]
        await platform.send_buttons(CHANNEL, "*" * 1990, many[:1], key="b")
        await platform.close_buttons(CHANNEL, sent.id, "**Approved**")
        assert (shown.content, shown.components) == (r"\*\*Approved\*\*", [])


async def test_buttons_of_a_deleted_message_are_gone() -> None:
    async with open_platform() as (_, platform):
        with pytest.raises(GoneError, match="10008"):
            await platform.close_buttons(CHANNEL, "99", "Approved")


async def test_a_file_goes_with_its_name() -> None:
    async with open_platform() as (fake, platform):
        content = bytes(range(256)) * 10
        await platform.send_file(IN_THREAD, 'a "b".bin', content, key="f")
        (shown,) = fake.sent(THREAD)
        assert shown.files[0].content == content


async def test_a_file_that_is_too_large_is_refused() -> None:
    async with open_platform() as (_, platform):
        with pytest.raises(RefusedError, match="40005"):
            await platform.send_file(PRIVATE, "a", bytes(platform.largest_upload + 1), key="f")


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b"null", b"<html>"])
async def test_a_malformed_answer_is_unreachable(answer: bytes) -> None:
    async with open_platform() as (fake, platform):
        fake.fail(MESSAGES, status=200, body=answer, times=3)
        with pytest.raises(UnreachableError):
            await send(platform)


async def test_a_slow_call_is_given_up() -> None:
    async with open_platform() as (fake, platform):
        fake.fail(MESSAGES, lost="never", times=3)
        with pytest.raises(UnreachableError, match="too long"):
            await send(platform)


def test_every_client_error_is_translated() -> None:
    """A URL may hold the token of an interaction."""
    request = httpx2.Request("GET", "https://discord.com/secret")
    for error in (
        httpx2.ConnectError("https://discord.com/secret", request=request),
        httpx2.ReadTimeout("https://discord.com/secret", request=request),
        httpx2.RemoteProtocolError("https://discord.com/secret", request=request),
        httpx2.InvalidURL("https://discord.com/secret"),
        httpx2.StreamClosed(),
    ):
        with pytest.raises((NotSentError, UnreachableError)) as caught:
            with _translated_errors("try"):
                raise error
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None
