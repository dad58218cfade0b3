"""Messages, buttons and files are sent to Slack, and each refusal is understood."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import trio

from orchestrator.chat import (
    Attachment,
    Button,
    ButtonPress,
    ChatAddress,
    ChatUser,
    GoneError,
    NotSentError,
    RefusedError,
    RetryAfterError,
    RevokedError,
)
from orchestrator.products.chat.slack.answers import Answer
from orchestrator.products.chat.slack.api import (
    API_URL,
    FileTooLargeError,
    SlackError,
    SlackRefusedError,
    SlackUnreachableError,
    is_host_of,
    open_slack_api,
)
from orchestrator.products.chat.slack.platform import SlackPlatform, open_slack
from tests.chat.fakes.slack import BOB, BOT_TOKEN, DIRECT, GENERAL, FakeSlack, open_fake_slack
from tests.chat.slack_kit import bot_by_requests

CHANNEL = ChatAddress("slack", GENERAL)


async def send(
    slack: SlackPlatform, text: str = "hello", address: ChatAddress = CHANNEL, mark: str = ""
) -> str:
    """Send a text of one part, and return what had to be left out."""
    (part,) = slack.split(text)
    return (await slack.send(address, part, key="k", mark=mark)).changed


async def test_a_message_is_rich_text_with_a_plain_one_for_notices() -> None:
    async with bot_by_requests() as bot:
        root = bot.fake.say("hello", channel=GENERAL)
        assert await send(bot.slack, "**hi** <!here>", _thread(root.ts)) == ""
        (sent,) = bot.fake.replies(GENERAL, root.ts)
        assert sent.text == "hi &lt;!here&gt;"
        assert sent.shown == "hi <!here>"
        call = bot.fake.calls[-1]
        assert call.arguments["unfurl_links"] is False
        assert call.arguments["unfurl_media"] is False


def _thread(ts: str) -> ChatAddress:
    return ChatAddress("slack", GENERAL, ts)


async def test_a_mark_stands_before_the_text() -> None:
    async with bot_by_requests() as bot:
        await send(bot.slack, "the answer", mark="(Sent again.)")
        (sent,) = bot.fake.replies()
        assert sent.shown == "(Sent again.)\n\nthe answer"


async def test_a_missing_slack_thread_is_omitted_and_reported() -> None:
    async with bot_by_requests() as bot:
        changed = await send(bot.slack, address=_thread("1.000001"))
        assert changed == "the thread"
        (sent,) = bot.fake.replies()
        assert sent.thread_ts == ""


@pytest.mark.parametrize("code", ["invalid_blocks", "msg_blocks_too_long"])
async def test_refused_formatting_is_omitted_and_reported(code: str) -> None:
    async with bot_by_requests() as bot:
        bot.fake.fail("chat.postMessage", error=code)
        assert await send(bot.slack, "**a** <b>") == "the formatting"
        (sent,) = bot.fake.replies()
        assert (sent.text, sent.blocks) == ("a &lt;b&gt;", [])


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("channel_not_found", GoneError),
        ("is_archived", GoneError),
        ("not_in_channel", GoneError),
        ("invalid_auth", RevokedError),
        ("account_inactive", RevokedError),
        ("token_revoked", RevokedError),
        ("missing_scope", NotSentError),
        ("msg_too_long", RefusedError),
        ("a_word_that_is_new", RefusedError),
        ("internal_error", SlackUnreachableError),
    ],
)
async def test_each_refusal_code_maps_to_its_error(code: str, error: type[Exception]) -> None:
    async with bot_by_requests() as bot:
        bot.fake.fail("chat.postMessage", error=code)
        with pytest.raises(error, match=code):
            await send(bot.slack)


async def test_the_fake_workspace_refuses_like_slack() -> None:
    async with bot_by_requests() as bot:
        with pytest.raises(GoneError, match="channel_not_found"):
            await send(bot.slack, address=ChatAddress("slack", "C0NONE"))
        bot.fake.channels[GENERAL].is_archived = True
        with pytest.raises(GoneError, match="is_archived"):
            await send(bot.slack)
        bot.fake.channels[GENERAL].members.clear()
        with pytest.raises(GoneError, match="not_in_channel"):
            await send(bot.slack)
        bot.fake.is_revoked = True
        with pytest.raises(RevokedError, match="token_revoked"):
            await send(bot.slack)


async def test_a_rate_limit_names_its_seconds() -> None:
    async with bot_by_requests() as bot:
        bot.fake.fail("chat.postMessage", status=429, retry_after="17")
        with pytest.raises(RetryAfterError) as raised:
            await send(bot.slack)
        assert raised.value.seconds == 17
        bot.fake.fail("chat.postMessage", status=429, retry_after="soon")
        with pytest.raises(RetryAfterError) as raised:
            await send(bot.slack)
        assert raised.value.seconds == 30


@pytest.mark.parametrize(
    "fault", [{"status": 500}, {"status": 503}, {"lost": "before"}, {"lost": "after"}]
)
async def test_a_message_that_may_have_arrived_is_not_reported_as_unsent(
    fault: dict[str, Any],
) -> None:
    async with bot_by_requests() as bot:
        bot.fake.fail("chat.postMessage", **fault)
        with pytest.raises(SlackError) as raised:
            await send(bot.slack)
        assert not isinstance(raised.value, NotSentError)
        assert bot.fake.origin not in repr(raised.value)
        assert len(bot.fake.replies()) == (fault.get("lost") == "after")


async def test_an_unreachable_slack_raises_not_sent() -> None:
    url = "http://127.0.0.1:9/api/"
    async with open_slack("xoxb-secret", url=url) as slack:
        with pytest.raises(NotSentError) as raised:
            await send(slack)
    shown = f"{raised.value!r} {raised.value.__cause__!r}"
    assert "127.0.0.1" not in shown
    assert "secret" not in shown


async def test_a_slack_that_does_not_answer_is_not_waited_for_forever() -> None:
    async def accept(stream: trio.SocketStream) -> None:
        async with stream:
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, accept, [listener])
        port = listener.socket.getsockname()[1]
        async with open_slack("xoxb-x", url=f"http://127.0.0.1:{port}/api/") as slack:
            with pytest.raises(SlackUnreachableError):
                await send(slack)
        nursery.cancel_scope.cancel()


async def test_buttons_go_when_they_are_answered() -> None:
    async with bot_by_requests() as bot:
        buttons = [Button("Approve", "once:1"), Button("Deny", "deny:1" + "x" * 58)]
        sent = await bot.slack.send_buttons(CHANNEL, "May I?", buttons, key="k")
        (asked,) = bot.fake.replies()
        assert [*asked.buttons] == ["Approve", "Deny"]
        assert asked.buttons["Approve"]["value"] == "once:1"

        await bot.slack.close_buttons(CHANNEL, sent.id, "Approved by Ada.")
        (asked,) = bot.fake.replies()
        assert not asked.buttons
        assert asked.shown == "Approved by Ada."
        # A message that was deleted has no buttons either.
        bot.fake.messages.clear()
        await bot.slack.close_buttons(CHANNEL, sent.id, "Approved by Ada.")


async def test_only_the_person_who_pressed_reads_the_answer() -> None:
    async with bot_by_requests() as bot:
        press = ButtonPress(
            id="1", address=CHANNEL, user=ChatUser(BOB), data="x", message="1.2", is_private=False
        )
        await bot.slack.answer_press(press, "It was answered already.")
        (told,) = bot.fake.messages
        assert (told.only_for, told.text) == (BOB, "It was answered already.")


async def test_show_typing_sets_the_status_of_the_thread_and_never_fails() -> None:
    async with bot_by_requests() as bot:
        root = bot.fake.say("hello", channel=GENERAL)
        await bot.slack.show_typing(_thread(root.ts))
        await bot.slack.show_typing(ChatAddress("slack", DIRECT))
        await bot.slack.show_typing(_thread("1.000001"))
        assert [it[1] for it in bot.fake.statuses] == [root.ts]
        bot.fake.fail("assistant.threads.setStatus", status=429, retry_after="60")
        begun = trio.current_time()
        await bot.slack.show_typing(_thread(root.ts))
        assert trio.current_time() == begun


async def test_an_app_that_may_not_show_a_status_asks_once() -> None:
    async with bot_by_requests() as bot:
        root = bot.fake.say("hello", channel=GENERAL)
        bot.fake.missing_scopes.add("assistant.threads.setStatus")
        await bot.slack.show_typing(_thread(root.ts))
        bot.fake.missing_scopes.clear()
        await bot.slack.show_typing(_thread(root.ts))
        assert bot.fake.statuses == []


async def test_a_file_goes_to_the_thread() -> None:
    async with bot_by_requests() as bot:
        root = bot.fake.say("hello", channel=GENERAL)
        address = _thread(root.ts)
        sent = await bot.slack.send_file(address, "a.csv", b"1,2\n", key="k")
        (shown,) = bot.fake.replies(GENERAL, root.ts)
        assert shown.files == [sent.id]
        file = bot.fake.files[sent.id]
        assert (file.name, file.content) == ("a.csv", b"1,2\n")


async def test_a_file_that_was_not_completed_is_certainly_not_seen() -> None:
    async with bot_by_requests() as bot:
        bot.fake.fail("files.getUploadURLExternal", lost="after")
        with pytest.raises(NotSentError):
            await bot.slack.send_file(CHANNEL, "a.csv", b"1", key="k")
        bot.fake.fail("files.completeUploadExternal", lost="after")
        with pytest.raises(SlackUnreachableError):
            await bot.slack.send_file(CHANNEL, "a.csv", b"1", key="k")


async def test_the_token_goes_to_hosts_of_slack_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be hosted elsewhere, and its address may be forged."""
    async with bot_by_requests() as bot, open_fake_slack() as foreign:
        external = bot.fake.add_file("x", b"1", is_external=True)
        with pytest.raises(GoneError, match="not kept at Slack"):
            await bot.slack.download(_attachment(external.id))
        hosted = bot.fake.add_file("y", b"1")
        monkeypatch.setattr(bot.fake, "origin", foreign.origin)
        with pytest.raises(GoneError, match="foreign_host"):
            await bot.slack.download(_attachment(hosted.id))
        with pytest.raises(NotSentError, match="foreign host"):
            await bot.slack.send_file(CHANNEL, "a", b"1", key="k")


@pytest.mark.parametrize(
    ("url", "is_slack"),
    [
        ("https://files.slack.com/files-pri/T1-F1/a.txt", True),
        ("https://slack.com/x", True),
        ("https://acme.enterprise.slack.com/x", True),
        ("http://files.slack.com/x", False),
        ("https://files.slack.com:8443/x", False),
        ("https://slack.com.evil.example/x", False),
        ("https://evilslack.com/x", False),
        ("https://files.slack.com@evil.example/x", False),
        ("https://evil.example/files.slack.com", False),
        ("https://[x", False),
        ("", False),
    ],
)
def test_is_host_of_recognizes_hosts_of_slack(url: str, *, is_slack: bool) -> None:
    assert is_host_of(API_URL, url) == is_slack


async def test_files_that_cannot_be_fetched_are_gone() -> None:
    async with bot_by_requests() as bot:
        file = bot.fake.add_file("x", b"1")
        bot.fake.hides_files = True
        with pytest.raises(GoneError, match="files:read"):
            await bot.slack.download(_attachment(file.id))
        with pytest.raises(GoneError, match="file_not_found"):
            await bot.slack.download(_attachment("F0NONE"))


async def test_a_file_that_is_larger_than_wanted_is_not_read(fake: FakeSlack) -> None:
    async with open_slack_api(BOT_TOKEN, url=fake.api_url) as api:
        file = fake.add_file("x", b"123")
        url = f"{fake.origin}/files-pri/{file.id}/download"
        assert await api.download(url, most=3) == b"123"
        with pytest.raises(FileTooLargeError):
            await api.download(url, most=2)


def _attachment(id_: str) -> Attachment:
    return Attachment(name="x", reference=id_)


async def test_the_fake_refuses_the_calls_that_slack_refuses(fake: FakeSlack) -> None:
    """Otherwise the tests above would prove nothing."""
    async with open_slack_api(BOT_TOKEN, url=fake.api_url) as api:
        for method, arguments, code in (
            ("chat.postMessage", {"channel": GENERAL}, "no_text"),
            ("chat.postMessage", {"text": "x"}, "invalid_arguments"),
            ("chat.postMessage", {"channel": GENERAL, "txt": "x"}, "invalid_arguments"),
            ("chat.postMessage", {"channel": GENERAL, "text": "x" * 40_001}, "msg_too_long"),
            ("chat.postMessage", {"channel": GENERAL, "blocks": [{}]}, "invalid_blocks"),
            ("chat.postMessage", {"channel": GENERAL, "blocks": "{"}, "invalid_blocks_format"),
            ("chat.update", {"channel": GENERAL, "ts": "1.2", "text": "x"}, "message_not_found"),
            (
                "chat.postEphemeral",
                {"channel": DIRECT, "user": BOB, "text": "x"},
                "user_not_in_channel",
            ),
            ("files.completeUploadExternal", {"files": [{"id": "F1"}]}, "file_not_found"),
            ("users.info", {"user": "U9"}, "user_not_found"),
            ("apps.connections.open", {}, "not_allowed_token_type"),
            ("chat.sendMessage", {}, "unknown_method"),
        ):
            with pytest.raises(SlackRefusedError) as raised:
                await api.call(method, Answer, **arguments)
            assert raised.value.code == code
    async with open_slack_api("xoxb-other", url=fake.api_url) as api:
        with pytest.raises(SlackRefusedError, match="invalid_auth"):
            await api.call("auth.test", Answer)


@pytest.fixture
async def fake() -> AsyncGenerator[FakeSlack]:
    async with open_fake_slack() as fake:
        yield fake
