"""Slack events arrive by request or socket, are handled once, and acknowledged when durable."""

import json
from collections.abc import AsyncGenerator
from functools import partial

import pytest
import trio

from orchestrator.chat import Button, ButtonPress, ChatAddress, RevokedError
from orchestrator.products.chat.slack.platform import open_slack
from tests.chat.fakes.slack import (
    ADA,
    APP_TOKEN,
    BOB,
    BOT_ID,
    BOT_TOKEN,
    BOT_USER,
    DIRECT,
    GENERAL,
    FakeSlack,
    open_fake_slack,
)
from tests.chat.slack_kit import Bot, KeptInbox, bot_by_requests, bot_by_socket

MENTION = f"<@{BOT_USER}>"


@pytest.fixture(params=["requests", "socket"])
async def bot(request: pytest.FixtureRequest) -> AsyncGenerator[Bot]:
    opened = bot_by_requests() if request.param == "requests" else bot_by_socket()
    async with opened as bot:
        yield bot


async def test_a_direct_message_is_received_with_its_author(bot: Bot) -> None:
    said = bot.fake.say("hello &amp; welcome")
    await bot.fake.wait_told()

    (heard,) = bot.inbox.messages
    assert heard.id == f"{DIRECT}:{said.ts}"
    assert heard.address == ChatAddress("slack", DIRECT)
    assert (heard.user.id, heard.user.name) == (ADA, "Ada")
    assert (heard.text, heard.anchor) == ("hello & welcome", said.ts)
    assert heard.is_private
    assert heard.is_addressed


async def test_a_mention_sent_as_two_events_is_one_message(bot: Bot) -> None:
    """Slack sends `message` and `app_mention`, with two event ids."""
    said = bot.fake.say(f"{MENTION} look", channel=GENERAL)
    await bot.fake.wait_told()

    first, second = bot.inbox.messages
    assert first == second
    assert first.text == "look"
    assert first.address == ChatAddress("slack", GENERAL, said.ts)
    assert first.chat_name == "general"
    assert not first.is_private


async def test_a_thread_is_an_address_and_knows_its_addressee(bot: Bot) -> None:
    root = bot.fake.say(f"{MENTION} look", channel=GENERAL)
    await bot.fake.wait_told()
    bot.inbox.events.clear()
    bot.fake.say("and that", channel=GENERAL, thread_ts=root.ts, user=BOB)
    await bot.fake.wait_told()
    (heard,) = bot.inbox.messages
    assert heard.address == ChatAddress("slack", GENERAL, root.ts)
    assert not heard.is_addressed


async def test_a_reply_in_the_thread_of_our_message_is_addressed_to_us(bot: Bot) -> None:
    """People who answer a job's message in its thread do not mention the bot."""
    (part,) = bot.slack.split("the report")
    sent = await bot.slack.send(ChatAddress("slack", GENERAL), part, key="1")
    bot.fake.say("why?", channel=GENERAL, thread_ts=sent.id)
    await bot.fake.wait_told()
    (heard,) = bot.inbox.messages
    assert heard.address == ChatAddress("slack", GENERAL, sent.id)
    assert heard.is_addressed


@pytest.mark.parametrize(
    "others",
    [
        {"bot_id": "B99"},
        {"user": BOT_USER, "bot_id": BOT_ID},
        {"subtype": "message_changed", "hidden": True, "message": {"text": "x"}},
        {"subtype": "message_deleted", "hidden": True, "deleted_ts": "1.2"},
        {"subtype": "channel_join"},
        {"subtype": "bot_message", "username": "other"},
        {"text": "", "blocks": []},
        {"text": None},
    ],
)
async def test_events_that_no_person_wrote_are_ignored(others: dict[str, object]) -> None:
    async with bot_by_socket() as bot:
        event = {"user": ADA, "channel": DIRECT, "ts": "1.2", "text": "x", **others}
        bot.fake.tell("message", channel_type="im", **event)
        await bot.fake.wait_told()
        assert bot.inbox.events == []
        assert bot.inbox.lines == []


async def test_channel_messages_without_a_mention_are_ignored(bot: Bot) -> None:
    bot.fake.say("good morning", channel=GENERAL)
    await bot.fake.wait_told()
    assert bot.inbox.events == []


async def test_other_events_are_acknowledged(bot: Bot) -> None:
    id_ = bot.fake.tell("reaction_added", user=ADA, item={"type": "message"})
    bot.fake.tell("channel_created", channel={"id": "C9", "name": "new"})
    await bot.fake.wait_told()
    assert bot.fake.attempts[id_] == 1
    assert bot.inbox.events == []
    assert bot.inbox.lines == []


async def test_an_unreadable_event_is_reported_and_acknowledged(bot: Bot) -> None:
    id_ = bot.fake.tell("message", channel={"id": "C9"}, ts=5)
    await bot.fake.wait_told()
    assert bot.fake.attempts[id_] == 1
    (line,) = bot.inbox.lines
    assert "passed over" in line


async def test_an_event_is_sent_again_until_it_was_taken(bot: Bot) -> None:
    """It is acknowledged only when it is durable: a slow journal hears the same message again."""
    bot.inbox.seconds = 4
    bot.fake.say("hello")
    await bot.fake.wait_for(lambda: 2 in bot.fake.attempts.values())
    bot.inbox.seconds = 0
    await bot.fake.wait_told()
    assert len({it.id for it in bot.inbox.messages}) == 1
    assert [*bot.fake.attempts.values()] == [2]


async def test_a_request_that_was_not_accepted_is_not_acknowledged() -> None:
    async with bot_by_requests() as bot:
        bot.inbox.errors.append(ValueError("the journal is full"))
        bot.fake.say("hello")
        await bot.fake.wait_told()
        assert [*bot.fake.attempts.values()] == [2]
        assert len(bot.inbox.messages) == 1


async def test_a_button_press_carries_the_data_of_its_button(bot: Bot) -> None:
    said = bot.fake.say(f"{MENTION} go", channel=GENERAL)
    await bot.fake.wait_told()
    await bot.slack.send_buttons(
        bot.inbox.messages[0].address, "May I?", [Button("Yes", "approve:1")], key="k"
    )
    (asked,) = bot.fake.replies()
    bot.fake.press(asked, "Yes", user=BOB)
    await bot.fake.wait_told()

    press = bot.inbox.events[-1]
    assert isinstance(press, ButtonPress)
    assert press.address == ChatAddress("slack", GENERAL, said.ts)
    assert (press.data, press.message, press.user.id) == ("approve:1", asked.ts, BOB)


async def test_names_are_asked_for_once_and_can_be_missing(bot: Bot) -> None:
    bot.fake.missing_scopes |= {"users.info", "conversations.info"}
    bot.fake.say("one")
    await bot.fake.wait_told()
    bot.fake.say("two")
    await bot.fake.wait_told()
    assert [it.user.name for it in bot.inbox.messages] == ["", ""]


async def test_files_of_a_message_are_fetched_with_the_token(bot: Bot) -> None:
    file = bot.fake.add_file("../notes.txt", b"a" * 70_000)
    bot.fake.say("", files=[file])
    await bot.fake.wait_told()
    (heard,) = bot.inbox.messages
    (attachment,) = heard.attachments
    assert (attachment.name, attachment.size) == ("../notes.txt", 70_000)
    assert await bot.slack.download(attachment) == b"a" * 70_000


async def test_the_address_of_the_app_is_verified() -> None:
    async with bot_by_requests() as bot:
        body = {"token": "x", "challenge": "3eZbrw1a", "type": "url_verification"}
        answer = await bot.fake.post_signed(json.dumps(body).encode())
        assert (answer.status_code, answer.text) == (200, "3eZbrw1a")


async def test_a_request_with_a_wrong_signature_is_answered_with_401() -> None:
    async with bot_by_requests() as bot:
        body = json.dumps({"type": "url_verification", "challenge": "x"}).encode()
        wrong = await bot.fake.post_signed(body, secret="another")
        old = await bot.fake.post_signed(body, timestamp="1531420618")
        assert (wrong.status_code, old.status_code) == (401, 401)
        assert wrong.text == old.text == ""


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b'"x"'])
async def test_an_invalid_json_body_is_answered_with_400(body: bytes) -> None:
    async with bot_by_requests() as bot:
        answer = await bot.fake.post_signed(body)
        form = {"content-type": "application/x-www-form-urlencoded"}
        pressed = await bot.fake.post_signed(b"payload=" + body, form)
        assert (answer.status_code, pressed.status_code) == (400, 400)


async def test_a_body_that_is_too_large_is_not_read() -> None:
    async with bot_by_requests() as bot:
        answer = await bot.fake.post_signed(b" " * 1_000_001)
        assert answer.status_code == 413


async def test_events_wait_until_the_bot_knows_itself() -> None:
    """Slack cannot be asked who we are: a mention could not be told from other texts."""
    async with bot_by_requests() as bot:
        bot.fake.fail("auth.test", times=5, status=503)
        bot.fake.say("hello")
        await bot.fake.wait_told()
        assert len(bot.inbox.messages) == 1
        first, last = bot.inbox.lines
        assert "auth.test" in first
        assert "heard again" in last


async def test_a_refresh_opens_the_next_connection_before_the_old_one_closes() -> None:
    async with bot_by_socket() as bot:
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 1)
        (old,) = bot.fake.sockets
        await bot.fake.refresh_sockets("warning")
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 2)
        await old.socket.aclose()
        bot.fake.say("hello")
        await bot.fake.wait_told()
        assert len(bot.inbox.messages) == 1
        assert bot.inbox.lines == []


async def test_an_old_connection_that_slack_does_not_close_is_closed() -> None:
    async with bot_by_socket() as bot:
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 1)
        await bot.fake.refresh_sockets()
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 2)
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 1)


async def test_a_lost_connection_is_reported_once_and_reopened_with_pauses() -> None:
    async with bot_by_socket() as bot:
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 1)
        bot.fake.fail("apps.connections.open", times=4, status=503)
        begun = trio.current_time()
        bot.fake.drop_sockets()
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 0)
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 1)
        assert trio.current_time() - begun >= 1 + 2 + 4 + 8 + 16
        bot.fake.say("hello")
        await bot.fake.wait_told()
        assert len(bot.inbox.messages) == 1
        lost, refused, over = bot.inbox.lines
        assert "broke off" in lost
        assert "503" in refused
        assert "heard again" in over


async def test_an_envelope_of_a_lost_connection_arrives_by_the_next_one() -> None:
    async with bot_by_socket() as bot:
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 1)
        bot.inbox.seconds = 1
        bot.fake.say("hello")
        await bot.fake.wait_for(lambda: bool(bot.fake.attempts))
        bot.fake.drop_sockets()
        await bot.fake.wait_told()
        assert {it.text for it in bot.inbox.messages} == {"hello"}


async def test_a_connection_that_answers_no_ping_is_opened_again() -> None:
    async with bot_by_socket() as bot:
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 1)
        (old,) = bot.fake.sockets
        bot.fake.freeze_sockets()
        await bot.fake.wait_for(lambda: bot.fake.sockets[-1:] != [old])
        bot.fake.say("hello")
        await bot.fake.wait_told()
        assert len(bot.inbox.messages) == 1


async def test_disabled_socket_mode_is_reported_and_retried() -> None:
    async with bot_by_socket() as bot:
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 1)
        await bot.fake.refresh_sockets("link_disabled")
        await bot.fake.wait_for(lambda: len(bot.inbox.lines) == 1)
        assert "switched off" in bot.inbox.lines[0]
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 0)
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 1)


@pytest.mark.parametrize("code", ["invalid_auth", "account_inactive", "token_revoked"])
async def test_a_token_that_slack_refuses_ends_the_run(code: str) -> None:
    async with open_fake_slack() as fake, open_slack("xoxb-x", url=fake.api_url) as slack:
        fake.fail("auth.test", error=code)
        with pytest.raises(RevokedError, match=code):
            await slack.run(KeptInbox())


async def test_a_token_of_the_wrong_kind_ends_the_platform() -> None:
    async with (
        open_fake_slack() as fake,
        open_slack(BOT_TOKEN, app_token=BOT_TOKEN, url=fake.api_url) as slack,
    ):
        with pytest.raises(RevokedError, match="not_allowed_token_type"):
            await slack.run(KeptInbox())


@pytest.mark.parametrize(
    ("kind", "tokens"), [("app_uninstalled", {}), ("tokens_revoked", {"bot": ["U"]})]
)
async def test_an_app_that_is_removed_ends_the_run(kind: str, tokens: dict[str, list[str]]) -> None:
    async with (
        open_fake_slack() as fake,
        open_slack(BOT_TOKEN, app_token=APP_TOKEN, url=fake.api_url) as slack,
    ):
        fake.tell(kind, tokens=tokens)
        with pytest.raises(RevokedError, match="removed"):
            await slack.run(KeptInbox())


async def test_messages_of_a_thread_are_received_in_order_and_threads_concurrently() -> None:
    """A file that takes long holds up its own thread only."""
    async with bot_by_socket() as bot:
        await bot.fake.wait_for(lambda: len(bot.fake.sockets) == 1)
        first = bot.fake.say(f"{MENTION} first", channel=GENERAL)
        await bot.fake.wait_told()
        bot.inbox.events.clear()
        bot.inbox.seconds = 2
        for text in ("1", "2", "3"):
            before = bot.fake.sent
            bot.fake.say(text, channel=GENERAL, thread_ts=first.ts)
            await bot.fake.wait_for(partial(_is_above, bot.fake, before))
        begun = trio.current_time()
        bot.fake.say("4")
        await bot.fake.wait_told()
        texts = list(dict.fromkeys(it.text for it in bot.inbox.messages))
        assert [it for it in texts if it != "4"] == ["1", "2", "3"]
        assert texts.index("4") <= 1
        assert trio.current_time() - begun >= 6


def _is_above(fake: FakeSlack, sent: int) -> bool:
    return fake.sent > sent


async def test_a_bot_that_is_ended_says_farewell_and_does_not_wait() -> None:
    async with open_fake_slack() as fake:
        inbox = KeptInbox()
        async with (
            open_slack(BOT_TOKEN, app_token=APP_TOKEN, url=fake.api_url) as slack,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(slack.run, inbox)
            await fake.wait_for(lambda: len(fake.sockets) == 1)
            (connection,) = fake.sockets
            ended = trio.current_time()
            nursery.cancel_scope.cancel(reason="the gateway ends")
        assert trio.current_time() - ended < 1
        await fake.wait_for(lambda: not connection.is_open)
        reason = connection.socket.closed
        assert reason is not None
        assert reason.code == 1000


async def test_tokens_of_people_are_revoked_without_us() -> None:
    async with bot_by_socket() as bot:
        bot.fake.tell("tokens_revoked", tokens={"oauth": [ADA], "bot": []})
        bot.fake.say("hello")
        await bot.fake.wait_told()
        assert len(bot.inbox.messages) == 1
