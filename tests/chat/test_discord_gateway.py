"""The gateway of Discord: nothing is lost, and nothing acknowledged before it is durable."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from orchestrator.agents import raising_one_error
from orchestrator.chat import ChatAddress, RevokedError
from orchestrator.products.chat.discord import open_discord
from orchestrator.products.chat.discord.session_file import GatewaySession, SessionFile
from tests.chat.discord_kit import Connected, Inbox, connected, open_platform, within_an_hour
from tests.chat.fakes.discord import (
    BOT,
    DIRECT,
    GENERAL,
    MESSAGE_CONTENT,
    THREAD,
    TOKEN,
    FakeDiscord,
    open_fake_discord,
)


async def test_messages_are_received_in_order() -> None:
    async with connected() as chat:
        for number in range(20):
            await chat.fake.say(str(number))
        await chat.inbox.wait_events(20)
        assert chat.inbox.texts == [str(number) for number in range(20)]
        assert chat.fake.identified == 1


async def test_heartbeats_name_the_last_event_that_is_durable() -> None:
    """An event that was only received is not acknowledged."""
    async with connected() as chat:
        await chat.fake.say("durable")
        await chat.inbox.wait_events(1)
        await chat.fake.wait_handled()
        handled = chat.fake.heartbeats[-1]
        chat.inbox.gate = trio.Event()
        await chat.fake.say("not yet")
        await trio.sleep(200)
        assert chat.fake.heartbeats[-1] == handled
        chat.inbox.gate.set()
        await chat.fake.wait_handled()
        assert chat.fake.heartbeats[-1] == (handled or 0) + 1


async def test_the_first_heartbeat_comes_at_a_random_time_and_the_others_each_interval() -> None:
    async with connected(heartbeat_interval=10_000) as chat:
        began = trio.current_time()
        await chat.fake.wait_until(lambda: len(chat.fake.heartbeats) >= 3)
        assert 20 <= trio.current_time() - began <= 30
        assert chat.fake.connections == 1


async def test_a_heartbeat_that_is_asked_for_is_sent_at_once() -> None:
    async with connected() as chat:
        began = trio.current_time()
        count = len(chat.fake.heartbeats)
        await chat.fake.send_to_all({"op": 1, "d": None})
        await chat.fake.wait_until(lambda: len(chat.fake.heartbeats) > count)
        assert trio.current_time() == began


async def test_a_connection_that_does_not_answer_heartbeats_is_left_and_resumed() -> None:
    async with connected() as chat:
        chat.fake.answers_heartbeats = False
        await chat.fake.wait_until(lambda: chat.fake.connections == 2)
        chat.fake.answers_heartbeats = True
        await chat.fake.say("still there?")
        await chat.inbox.wait_events(1)
        assert (chat.fake.identified, chat.fake.resumed) == (1, 1)
        # Any of these would end the session.
        assert not {1000, 1001} & set(chat.fake.close_codes)


@pytest.mark.parametrize("how", ["cut", "asked", "invalid but resumable", 4000, 4008])
async def test_a_lost_connection_is_resumed_and_missed_messages_are_repeated(
    how: str | int,
) -> None:
    async with connected() as chat:
        await chat.fake.say("before")
        await chat.inbox.wait_events(1)
        match how:
            case "cut":
                await chat.fake.cut_sockets()
            case "asked":
                await chat.fake.send_to_all({"op": 7, "d": None})
            case "invalid but resumable":
                await chat.fake.send_to_all({"op": 9, "d": True})
            case _:
                assert isinstance(how, int)
                await chat.fake.close_sockets(how)
        await chat.fake.say("meanwhile")
        await chat.inbox.wait_events(2)
        await chat.fake.wait_connected()
        assert chat.inbox.texts == ["before", "meanwhile"]
        assert (chat.fake.identified, chat.fake.resumed) == (1, 1)
        assert chat.inbox.reports == []


async def test_an_event_that_was_not_durable_comes_again_after_a_loss() -> None:
    async with connected() as chat:
        chat.inbox.gate = trio.Event()
        await chat.fake.say("hello")
        await trio.testing.wait_all_tasks_blocked()
        await chat.fake.cut_sockets()
        await chat.fake.wait_until(lambda: chat.fake.resumed == 1)
        chat.inbox.gate.set()
        await chat.inbox.wait_events(1)
        assert chat.inbox.texts == ["hello"]


@pytest.mark.parametrize("how", ["forgotten", 4007, 4009])
async def test_an_expired_session_restarts_and_reads_the_history(how: str | int) -> None:
    async with connected() as chat:
        await _say_everywhere(chat, "before")
        if isinstance(how, int):
            await chat.fake.close_sockets(how)
        else:
            await chat.fake.cut_sockets()
        chat.fake.forget_sessions()
        await _say_everywhere(chat, "meanwhile", is_heard=False)
        await chat.inbox.wait_events(6)
        await chat.fake.wait_until(lambda: chat.fake.identified == 2)
        await _say_everywhere(chat, "after")
        for address in {it.address for it in chat.inbox.messages}:
            texts = [it.text for it in chat.inbox.messages if it.address == address]
            assert texts == ["before", "meanwhile", "after"]


async def test_more_than_a_page_of_history_is_read() -> None:
    async with connected() as chat:
        await chat.fake.say("before")
        await chat.inbox.wait_events(1)
        await chat.fake.cut_sockets()
        chat.fake.forget_sessions()
        for number in range(250):
            chat.fake.write(str(number))
        await chat.inbox.wait_events(251)
        assert chat.inbox.texts == ["before", *map(str, range(250))]


async def test_a_command_of_the_history_is_not_obeyed() -> None:
    """It may have been obeyed already, and stopping a turn a day later does harm."""
    async with connected() as chat:
        await chat.fake.say("before")
        await chat.inbox.wait_events(1)
        await chat.fake.cut_sockets()
        chat.fake.forget_sessions()
        chat.fake.write("!stop")
        chat.fake.write("/new")
        chat.fake.write("broken", attachments=7)
        chat.fake.write("go on")
        await chat.inbox.wait_events(2)
        assert chat.inbox.texts == ["before", "go on"]


async def test_an_unreadable_history_blocks_no_other_channel() -> None:
    async with connected() as chat:
        await _say_everywhere(chat, "before")
        await chat.fake.cut_sockets()
        chat.fake.forget_sessions()
        del chat.fake.channels[THREAD]
        for fault in ({"status": 502}, {"status": 429, "retry_after": 7.0}):
            chat.fake.fail("GET /channels/{}/messages", **fault)
        chat.fake.write("meanwhile")
        await chat.inbox.wait_events(4)
        assert chat.inbox.texts[-1] == "meanwhile"


async def test_the_next_process_resumes_the_session(tmp_path: Path) -> None:
    file = tmp_path / "session"
    async with within_an_hour(), open_fake_discord() as fake:
        first = await _hear_until(fake, file, lambda _: fake.is_connected)
        assert first.texts == []
        await fake.say(f"<@{BOT}> anyone?", channel=GENERAL)
        second = await _hear_until(fake, file, lambda it: bool(it.texts))
        assert second.texts == ["anyone?"]
        assert (fake.identified, fake.resumed) == (1, 1)
        third = await _hear_until(fake, file, lambda _: fake.resumed == 2)
        assert third.texts == []
    assert file.stat().st_mode & 0o077 == 0
    assert TOKEN not in file.read_text()


async def test_an_expired_session_in_the_file_is_replaced(tmp_path: Path) -> None:
    """Its addresses are known from the sessions that are held."""
    file = tmp_path / "session"
    async with within_an_hour(), open_fake_discord() as fake:
        said = fake.write("heard by an earlier process")
        _file(file).save(GatewaySession("gone", fake.gateway_url, 7, BOT))
        fake.write("said while no process ran")
        anchors = {ChatAddress("discord", DIRECT): said.id, ChatAddress("slack", "C1"): "1.2"}
        inbox = await _hear_until(fake, file, lambda it: bool(it.texts), anchors)
        assert inbox.texts == ["said while no process ran"]
        assert fake.identified == 1


async def test_a_message_older_than_a_day_is_not_answered() -> None:
    async with open_fake_discord(lambda: 1_700_000_000.0) as fake:
        old = fake.write("first")
        fake.write("two days ago")
        anchors = {ChatAddress("discord", DIRECT): old.id}
        async with open_discord(
            TOKEN, url=fake.url, clock=lambda: 1_700_000_000.0 + 2 * 86_400
        ) as platform:
            inbox = Inbox()
            inbox.anchors.update(anchors)
            with raising_one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(platform.run, inbox)
                    await fake.wait_connected()
                    await fake.wait_handled()
                    nursery.cancel_scope.cancel()
        assert inbox.texts == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"id": 7}'])
async def test_a_broken_file_begins_a_new_session(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "session"
    file.write_bytes(content)
    file.chmod(0o600)
    async with within_an_hour(), open_fake_discord() as fake:
        await _hear_until(fake, file, lambda _: fake.is_connected)
        assert fake.identified == 1


async def test_an_outage_is_reported_once_with_its_end(tmp_path: Path) -> None:
    async with connected() as chat:
        chat.fake.refuses_sockets = 6
        began = trio.current_time()
        await chat.fake.cut_sockets()
        await chat.fake.wait_until(lambda: chat.fake.resumed == 1)
        # The pauses grow.
        assert 15 < trio.current_time() - began < 120
        await chat.inbox.wait_reports(2)
        assert len(chat.inbox.reports) == 2
        assert chat.inbox.reports[-1] == "discord: heard again"
        assert "://" not in "".join(chat.inbox.reports)


async def test_an_unreachable_gateway_at_the_start_is_retried() -> None:
    async with open_platform() as (fake, platform):
        fake.fail("GET /gateway/bot", status=502, times=3)
        fake.fail("GET /gateway/bot", lost="before")
        inbox = Inbox()
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(platform.run, inbox)
                await fake.wait_connected()
                await fake.say("hello")
                await inbox.wait_events(1)
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("code", [4004, 4010, 4011, 4012, 4013, 4014])
async def test_a_bot_that_is_refused_ends(code: int) -> None:
    async with open_platform() as (fake, platform):

        async def refuse() -> None:
            await fake.wait_connected()
            await fake.close_sockets(code)

        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refuse)
                with pytest.raises(RevokedError, match=str(code)) as caught:
                    await platform.run(Inbox())
        assert fake.connections == 1
        assert TOKEN not in str(caught.value)


async def test_a_bot_without_the_message_intent_names_the_setting() -> None:
    async with open_platform() as (fake, platform):
        fake.disallowed_intents = MESSAGE_CONTENT
        with pytest.raises(RevokedError, match="Message Content Intent"):
            await platform.run(Inbox())


async def test_a_wrong_token_ends_the_gateway() -> None:
    async with open_platform("a.wrong.token") as (fake, platform):
        with pytest.raises(RevokedError, match="token"):
            await platform.run(Inbox())
        assert fake.connections == 0


async def test_no_session_begins_after_the_last_allowed_start() -> None:
    """One too many, and Discord revokes the token."""
    async with open_platform() as (fake, platform):
        fake.session_starts = 0
        inbox = Inbox()
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(platform.run, inbox)
                await inbox.wait_reports(1)
                assert "no more sessions" in inbox.reports[0]
                await trio.testing.wait_all_tasks_blocked()
                fake.session_starts = 1
                await fake.wait_connected()
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "frame", ["{}", "[1]", "no JSON", '{"op": 0, "t": "READY", "s": 1, "d": {}}']
)
async def test_a_malformed_frame_costs_only_the_connection(frame: str) -> None:
    async with connected() as chat:
        for it in list(chat.fake._open):
            await it.socket.send_message(frame)
        await chat.fake.wait_until(lambda: chat.fake.connections == 2)
        await chat.fake.say("hello")
        await chat.inbox.wait_events(1)


async def test_operations_and_events_that_are_not_known_are_ignored() -> None:
    async with connected() as chat:
        await chat.fake.send_to_all({"op": 99, "d": {}})
        for session in chat.fake._sessions.values():
            chat.fake._dispatch(session, "SOMETHING_NEW", {})
        await chat.fake.say("hello")
        await chat.inbox.wait_events(1)
        assert chat.fake.connections == 1


async def test_the_token_goes_over_no_plain_connection_to_discord(tmp_path: Path) -> None:
    """An earlier process may have talked to a stand-in, and its file is there still."""
    file = tmp_path / "session"
    async with within_an_hour(), open_fake_discord() as fake:
        _file(file).save(GatewaySession("s", fake.gateway_url, 1, BOT))
        async with open_discord(TOKEN, session_file=file, url="https://127.0.0.1:9") as platform:
            with trio.move_on_after(60):
                await platform.run(Inbox())
        assert fake.connections == 0


async def test_a_slow_channel_keeps_no_other_one_waiting() -> None:
    """A file that is fetched in one channel takes its time."""
    async with connected() as chat:
        gate = trio.Event()
        take = chat.inbox.receive

        async def receive(event: object) -> None:
            if getattr(event, "text", "") == "slow":
                await gate.wait()
            await take(event)  # type: ignore[arg-type]

        chat.inbox.receive = receive  # type: ignore[method-assign]
        await chat.fake.say("slow")
        await chat.fake.say("after it")
        await chat.fake.say(f"<@{BOT}> elsewhere", channel=GENERAL)
        await chat.inbox.wait_events(1)
        assert chat.inbox.texts == ["elsewhere"]
        gate.set()
        await chat.inbox.wait_events(3)
        assert chat.inbox.texts == ["elsewhere", "slow", "after it"]


async def test_an_event_that_is_not_understood_is_left_out() -> None:
    """It would come again with every connection."""
    async with connected() as chat:
        for data in ({"attachments": 7}, {"author": None}, {"channel_id": None}):
            await chat.fake.say("broken", **data)
        for session in chat.fake._sessions.values():
            chat.fake._dispatch(session, "INTERACTION_CREATE", {"id": 7})
        await chat.fake.say("hello")
        await chat.inbox.wait_events(1)
        await chat.fake.wait_handled()
        assert chat.inbox.texts == ["hello"]
        assert len(chat.inbox.reports) == 3
        assert chat.fake.connections == 1


async def test_an_unwritable_file_is_reported_once(tmp_path: Path) -> None:
    async with within_an_hour(), open_fake_discord() as fake:
        for number in range(3):
            fake.write(str(number))
        missing = tmp_path / "no folder" / "session"
        inbox = await _hear_until(fake, missing, lambda _: fake.is_connected)
        assert len(inbox.reports) == 1
        assert "cannot be written" in inbox.reports[0]


async def test_a_file_that_others_can_read_is_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "session"
    async with within_an_hour(), open_fake_discord() as fake:
        _file(file).save(GatewaySession("s", fake.gateway_url, 1, BOT))
        file.chmod(0o644)
        inbox = await _hear_until(fake, file, lambda _: fake.is_connected)
        assert (fake.identified, fake.resumed) == (1, 0)
        assert "chmod 600" in inbox.reports[0]


def _file(path: Path) -> SessionFile:
    return SessionFile(path, lambda _: None)


async def _say_everywhere(chat: Connected, text: str, *, is_heard: bool = True) -> None:
    """Let a person write in a private chat, a channel and a thread."""
    count = len(chat.inbox.events)
    for channel in (DIRECT, GENERAL, THREAD):
        mention = "" if channel == DIRECT else f"<@{BOT}> "
        if is_heard:
            await chat.fake.say(mention + text, channel=channel)
        else:
            chat.fake.write(mention + text, channel=channel)
    if is_heard:
        await chat.inbox.wait_events(count + 3)


async def _hear_until(
    fake: FakeDiscord,
    file: Path,
    is_enough: Callable[[Inbox], bool],
    anchors: dict[ChatAddress, str] | None = None,
) -> Inbox:
    """Run one process of the platform until it has heard enough."""
    inbox = Inbox()
    inbox.anchors.update(anchors or {})
    async with open_discord(TOKEN, session_file=file, url=fake.url) as platform:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(platform.run, inbox)
                await fake.wait_until(lambda: is_enough(inbox))
                await fake.wait_handled()
                nursery.cancel_scope.cancel()
    return inbox
