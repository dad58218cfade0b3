"""An agent on Slack: threads, mentions, commands, approvals, files and jobs, by both ways in."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
import trio

from orchestrator.agents import Agent, ScriptedModel, ToolCall, confirm, tool
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.tools.files import read_file
from orchestrator.chat import Gateway, GatewaySettings, open_gateway
from orchestrator.delegation.events import (
    DeliveryFailed,
    MessageReceived,
    MetadataChanged,
    ReplyPartDelivered,
)
from orchestrator.products.chat.replies import MARK
from orchestrator.products.chat.slack import open_slack
from orchestrator.products.server.chat_webhooks import open_chat_webhooks
from orchestrator.products.server.transport.listener import Listening
from orchestrator.schedule import Job
from orchestrator.testing import Harness
from tests.chat.fakes.slack import (
    ADA,
    APP_TOKEN,
    BOB,
    BOT_TOKEN,
    BOT_USER,
    DIRECT,
    GENERAL,
    SIGNING_SECRET,
    FakeSlack,
    open_fake_slack,
)
from tests.chat.gateway_kit import echoing

MENTION = f"<@{BOT_USER}>"
Way = Literal["socket", "requests"]


@attrs.define
class Talk:
    """A gateway on a fake Slack."""

    fake: FakeSlack
    way: Way = "socket"
    harness: Harness = attrs.field(factory=Harness)
    reports: list[str] = attrs.field(factory=list)

    @asynccontextmanager
    async def open(self, agent: Agent[Any], **given: Any) -> AsyncGenerator[Gateway]:
        """Open a gateway, as a process would."""
        is_called = self.way == "requests"
        settings = GatewaySettings(allow=(f"slack:{ADA}",))
        async with AsyncExitStack() as opened:
            slack = await opened.enter_async_context(
                open_slack(
                    BOT_TOKEN,
                    app_token="" if is_called else APP_TOKEN,
                    signing_secret=SIGNING_SECRET if is_called else "",
                    url=self.fake.api_url,
                )
            )
            orchestrator = await opened.enter_async_context(self.harness.open())
            gateway = await opened.enter_async_context(
                open_gateway(
                    orchestrator,
                    agent,
                    [slack],
                    settings=settings,
                    report=self.reports.append,
                    **given,
                )
            )
            if gateway.webhooks:
                listening = Listening(port=0)
                address = await opened.enter_async_context(
                    open_chat_webhooks(gateway.webhooks, listening, Redactor())
                )
                self.fake.request_url = f"{address}/slack"
            yield gateway


@asynccontextmanager
async def talking(agent: Agent[Any], way: Way = "socket", **given: Any) -> AsyncGenerator[Talk]:
    async with open_fake_slack() as fake:
        talk = Talk(fake, way)
        async with talk.open(agent, **given):
            yield talk
        talk.harness.assert_laws()
        assert fake.violations == []


async def wait_replies(fake: FakeSlack, count: int) -> list[str]:
    """Wait for so many messages, and until all is acknowledged; return what they show."""
    await fake.wait_for(lambda: len(fake.replies()) >= count)
    await fake.wait_told()
    return [it.shown for it in fake.replies()]


@pytest.mark.parametrize("way", ["socket", "requests"])
async def test_a_mention_is_answered_once_and_in_its_thread(way: Way) -> None:
    """It is told as two events, at once: by requests, both are under way together."""
    async with talking(echoing(), way) as talk:
        said = talk.fake.say(f"{MENTION} look", channel=GENERAL)
        await wait_replies(talk.fake, 1)
        talk.fake.say_again()
        talk.fake.say("and this?", channel=GENERAL, thread_ts=said.ts)
        await wait_replies(talk.fake, 2)
    first, second = talk.fake.replies()
    assert {first.thread_ts, second.thread_ts} == {said.ts}
    assert (first.shown, second.shown) == ("You said: Ada: look", "You said: Ada: and this?")
    assert len(talk.harness.facts(MessageReceived)) == 2


@pytest.mark.parametrize("way", ["socket", "requests"])
async def test_a_command_in_a_channel_is_run_once(way: Way) -> None:
    async with talking(echoing(), way) as talk:
        talk.fake.say(f"{MENTION} !help", channel=GENERAL)
        talk.fake.say(f"{MENTION} /cost", channel=GENERAL)
        help_, cost = sorted(await wait_replies(talk.fake, 2), key=len, reverse=True)
        talk.fake.say_again()
        await talk.fake.wait_told()
        assert len(talk.fake.replies()) == 2
    assert "!new" in help_
    assert "/new" not in help_
    assert "no conversation" in cost


async def test_strangers_and_unaddressed_messages_get_no_answer() -> None:
    async with talking(echoing()) as talk:
        talk.fake.say(f"{MENTION} let me in", user=BOB, channel=GENERAL)
        root = talk.fake.say("good morning", channel=GENERAL)
        talk.fake.say("morning!", channel=GENERAL, thread_ts=root.ts)
        talk.fake.say("hello")
        assert await wait_replies(talk.fake, 1) == ["You said: hello"]
        assert [it.channel for it in talk.fake.replies()] == [DIRECT]


async def test_a_pause_is_kept_for_its_channel_and_no_other() -> None:
    async with talking(echoing()) as talk:
        talk.fake.fail("chat.postMessage", status=429, retry_after="30")
        talk.fake.say("slowly")
        await talk.fake.wait_for(lambda: any(it.method == "users.info" for it in talk.fake.calls))
        await talk.fake.wait_told()
        talk.fake.limit(DIRECT, 20)
        begun = trio.current_time()
        talk.fake.say(f"{MENTION} at once", channel=GENERAL)
        await talk.fake.wait_for(lambda: len(talk.fake.replies(GENERAL)) == 1)
        assert trio.current_time() - begun < 20
        await talk.fake.wait_for(lambda: len(talk.fake.replies(DIRECT)) == 1)
        assert trio.current_time() - begun >= 20


async def test_a_lost_answer_is_sent_again_and_marked() -> None:
    async with talking(echoing()) as talk:
        talk.fake.fail("chat.postMessage", lost="after")
        talk.fake.say("hello")
        first, again = await wait_replies(talk.fake, 2)
        assert (first, again) == ("You said: hello", f"{MARK}\n\nYou said: hello")
    assert len(talk.harness.facts(DeliveryFailed)) == 1


async def test_a_thread_that_is_deleted_is_a_fact_of_the_reply() -> None:
    async with talking(echoing()) as talk:
        talk.fake.fail("chat.postMessage", error="thread_not_found")
        talk.fake.say(f"{MENTION} hello", channel=GENERAL)
        await wait_replies(talk.fake, 1)
        assert talk.fake.replies()[0].thread_ts == ""
    (sent,) = talk.harness.facts(ReplyPartDelivered)
    assert sent.receipt.endswith("(the thread)")


async def test_a_missing_chat_is_given_up_alone() -> None:
    async with talking(echoing()) as talk:
        talk.fake.channels[GENERAL].is_archived = True
        talk.fake.say(f"{MENTION} hello", channel=GENERAL)
        talk.fake.say("hello")
        await wait_replies(talk.fake, 1)
        assert [it.channel for it in talk.fake.replies()] == [DIRECT]


async def test_a_revoked_token_is_reported_once_and_ends_only_its_bot() -> None:
    async with talking(echoing()) as talk:
        talk.fake.say("hello")
        await wait_replies(talk.fake, 1)
        talk.fake.is_revoked = True
        talk.fake.drop_sockets()
        await _until(lambda: any("token_revoked" in it for it in talk.reports))
        assert len([it for it in talk.reports if "token_revoked" in it]) == 1
        assert not any(BOT_TOKEN in it for it in talk.reports)


async def _until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110 (a list tells of no change; the clock jumps)
        await trio.sleep(1)


@tool(machine="write")
async def deploy(version: str) -> str:
    """Deploy a version.

    Args:
        version: which one.
    """
    await trio.lowlevel.checkpoint()
    return f"{version} is deployed"


async def test_an_approval_is_asked_with_buttons_in_the_thread() -> None:
    agent = Agent(
        "helper",
        model=ScriptedModel([ToolCall("deploy", {"version": "2"}), "Done."]),
        tools=(deploy,),
        approve=(confirm("deploy"),),
    )
    async with talking(agent) as talk:
        said = talk.fake.say(f"{MENTION} deploy 2", channel=GENERAL)
        await talk.fake.wait_for(lambda: len(talk.fake.replies()) == 1)
        (asked,) = talk.fake.replies(GENERAL, said.ts)
        assert "Approve" in asked.buttons
        talk.fake.press(asked, "Approve", user=BOB)
        await talk.fake.wait_told()
        assert asked.buttons, "a stranger has approved"
        talk.fake.press(asked, "Approve")
        *_, last = await wait_replies(talk.fake, 2)
        assert last == "Done."
        await talk.fake.wait_for(lambda: not asked.buttons)
        assert f"Approved by slack:{ADA}, named 'Ada" in asked.shown
        await talk.fake.wait_for(lambda: any(it.only_for for it in talk.fake.messages))
        assert {it.only_for for it in talk.fake.messages} == {"", ADA}


@pytest.mark.realtime
async def test_files_are_saved_to_and_sent_from_the_workspace(tmp_path: Path) -> None:
    agent = Agent(
        "helper",
        model=ScriptedModel([ToolCall("send_file", {"path": "out.txt"}), "Sent."]),
        tools=(read_file,),
        workspace=tmp_path,
    )
    (tmp_path / "out.txt").write_text("from the workspace")
    async with talking(agent, workspace=tmp_path) as talk:
        file = talk.fake.add_file("../../in.txt", b"from Ada")
        said = talk.fake.say(f"{MENTION} look", channel=GENERAL, files=[file])
        with trio.fail_after(30):
            await wait_replies(talk.fake, 2)
        sent = talk.fake.replies(GENERAL, said.ts)[0]
        assert talk.fake.files[sent.files[0]].content == b"from the workspace"
    (saved,) = (tmp_path / "attachments").iterdir()
    assert saved.read_bytes() == b"from Ada"
    assert saved.name.endswith("-in.txt")


async def test_a_job_delivers_to_a_channel_and_is_answered_in_its_thread() -> None:
    writer = Agent("writer", model=ScriptedModel.always("Rome is sunny."))
    job = Job("every 2h", writer, "Write.", deliver=f"slack:{GENERAL}")
    async with talking(echoing(), jobs=[job], clock=trio.current_time) as talk:
        await talk.fake.wait_for(lambda: len(talk.fake.replies()) == 1)
        (sent,) = talk.fake.replies(GENERAL, "")
        talk.fake.say("And Milan?", channel=GENERAL, thread_ts=sent.ts)
        await talk.fake.wait_for(lambda: bool(talk.fake.replies(GENERAL, sent.ts)))
        (answer,) = talk.fake.replies(GENERAL, sent.ts)
        assert "Rome is sunny." in answer.shown
        assert "And Milan?" in answer.shown


async def test_a_person_can_answer_where_a_job_delivers() -> None:
    writer = Agent("writer", model=ScriptedModel.always("Rome is sunny."))
    job = Job("every 2h", writer, "Write.", deliver=f"slack:{ADA}")
    async with talking(echoing(), jobs=[job], clock=trio.current_time) as talk:
        await talk.fake.wait_for(lambda: len(talk.fake.replies()) == 1)
        talk.fake.say("And Milan?")
        await talk.fake.wait_for(lambda: len(talk.fake.replies()) == 2)
        assert "Rome is sunny." in talk.fake.replies()[1].shown


async def test_a_command_of_the_past_is_not_obeyed_again() -> None:
    """An approval that was given for one question would answer the next."""
    async with open_fake_slack() as fake:
        talk = Talk(fake)
        async with talk.open(echoing()):
            fake.say("one")
            await wait_replies(fake, 1)
            fake.say("!title Weather")
            await wait_replies(fake, 2)
        fake.say("two", is_told=False)
        async with talk.open(echoing()):
            *_, last = await wait_replies(fake, 3)
        assert last == "You said: two"
    assert len(talk.harness.facts(MetadataChanged)) == 1


@pytest.mark.parametrize("way", ["socket", "requests"])
async def test_messages_sent_while_the_gateway_was_away_are_read_later(way: Way) -> None:
    """Slack tells of a message for some minutes only."""
    async with open_fake_slack() as fake:
        talk = Talk(fake, way)
        async with talk.open(echoing()):
            root = fake.say(f"{MENTION} one", channel=GENERAL)
            fake.say("two")
            await wait_replies(fake, 2)
        fake.say("three", channel=GENERAL, thread_ts=root.ts, is_told=False)
        fake.say("by a stranger", channel=DIRECT, user=BOB, is_told=False)
        fake.say("four", is_told=False)
        fake.say("to others", channel=GENERAL, is_told=False)
        async with talk.open(echoing()):
            await wait_replies(fake, 4)
        async with talk.open(echoing()):
            fake.say("five")
            *_, last = await wait_replies(fake, 5)
        assert last == "You said: five"
        assert sorted(it.shown for it in fake.replies()[2:4]) == [
            "You said: Ada: three",
            "You said: four",
        ]
        assert fake.replies(GENERAL, root.ts)[1].shown == "You said: Ada: three"
        assert talk.reports == []
        assert fake.violations == []


async def test_a_gap_of_the_connection_is_read_again() -> None:
    async with talking(echoing()) as talk:
        talk.fake.say("one")
        await wait_replies(talk.fake, 1)
        talk.fake.fail("conversations.history", status=429, retry_after="5")
        talk.fake.drop_sockets()
        talk.fake.say("two", is_told=False)
        assert await wait_replies(talk.fake, 2) == ["You said: one", "You said: two"]


async def test_an_unreadable_history_is_reported() -> None:
    async with talking(echoing()) as talk:
        talk.fake.say("one")
        await wait_replies(talk.fake, 1)
        talk.fake.missing_scopes.add("conversations.history")
        talk.fake.drop_sockets()
        await _until(lambda: any("meanwhile" in it for it in talk.reports))
        talk.fake.say("two")
        assert await wait_replies(talk.fake, 2) == ["You said: one", "You said: two"]


async def test_secrets_of_the_app_are_in_no_answer_and_in_no_fact() -> None:
    """Also if a program gives them, and no variable of the environment."""
    async with talking(echoing(), "requests") as talk:
        talk.fake.say(f"what is {BOT_TOKEN} or {SIGNING_SECRET}?")
        (reply,) = await wait_replies(talk.fake, 1)
    facts = "".join(repr(it.event) for it in talk.harness.entries)
    for secret in (BOT_TOKEN, SIGNING_SECRET):
        assert secret not in reply
        assert secret not in facts
