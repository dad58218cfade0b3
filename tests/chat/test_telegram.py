"""Telegram: the behaviours of its door, against a fake that refuses what the real one refuses."""

from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio

from orchestrator.agents import Agent, DefinitionError, ScriptedModel, ToolCall, confirm, tool
from orchestrator.agents.tools.files import read_file
from orchestrator.chat import ChatAddress, ChatUser, IncomingMessage, open_gateway
from orchestrator.delegation.events import (
    ApprovalAnswered,
    DeliveryFailed,
    MessageReceived,
    ReplyPartDelivered,
)
from orchestrator.products.chat.attachments import harmless_name
from orchestrator.products.chat.replies import MARK
from orchestrator.products.chat.telegram import TelegramWebhook, open_telegram
from orchestrator.products.chat.telegram.markup import split_markdown, utf16_length
from orchestrator.products.server.chat_webhooks import LARGEST_BODY, open_chat_webhooks
from orchestrator.products.server.transport.listener import Listening
from orchestrator.testing import GatedModel, SpyModel
from tests.chat.fakes.telegram import TOKEN, FakeTelegram, Fault, revoked
from tests.chat.gateway_kit import (
    ADA,
    GROUP,
    SETTINGS,
    TOPIC,
    Talk,
    echoing,
    talking,
    with_settings,
)

LONG = "\n\n".join(f"Paragraph {number}. " + "word " * 150 for number in range(20))

# Where replies go.


async def test_a_chain_of_replies_is_not_a_topic() -> None:
    async with talking(echoing()) as (talk, fake):
        fake.say("@helper_bot one", chat=GROUP)
        await fake.wait_sent(1)
        answer = fake.sent[0]["message_id"]
        fake.say("two", chat=GROUP, reply_to=answer)
        await fake.wait_sent(2)
    sessions = {it.session for it in talk.harness.facts(MessageReceived)}
    assert len(sessions) == 1
    assert all("message_thread_id" not in it for it in fake.sent)


async def test_a_missing_topic_is_omitted_once_and_recorded() -> None:
    gate = GatedModel("Here.")
    async with talking(Agent("helper", model=gate)) as (talk, fake):
        fake.say("@helper_bot one", chat=GROUP, topic=TOPIC)
        await gate.wait_called()
        fake.chat(GROUP).topics.clear()
        gate.release()
        await fake.wait_sent(1)
        await fake.wait_heard()
    assert "message_thread_id" not in fake.sent[0]
    (part,) = talk.harness.facts(ReplyPartDelivered)
    assert part.receipt == f"{fake.sent[0]['message_id']} (without message_thread_id)"


async def test_a_message_that_was_deleted_is_answered_without_an_anchor() -> None:
    gate = GatedModel("Here.")
    async with talking(Agent("helper", model=gate)) as (_, fake):
        fake.say("one")
        await gate.wait_called()
        fake.chat(ADA).messages.clear()
        gate.release()
        await fake.wait_sent(1)
    assert "reply_to_message" not in fake.sent[0]


async def test_formatting_that_is_refused_is_left_out_once() -> None:
    async with talking(Agent("helper", model=ScriptedModel.always("**Bold**"))) as (talk, fake):
        fake.fail("sendMessage", Fault(400, "Bad Request: can't parse entities: no"))
        fake.say("one")
        await fake.wait_sent(1)
    assert fake.sent[0]["text"] == "Bold"
    assert "entities" not in fake.sent[0]
    (part,) = talk.harness.facts(ReplyPartDelivered)
    assert part.receipt.endswith("(without entities)")


async def test_a_refused_part_leaves_a_marked_gap() -> None:
    async with talking(Agent("helper", model=ScriptedModel.always(LONG))) as (_, fake):
        fake.fail("sendMessage", Fault(400, "Bad Request: this is forbidden"))
        fake.say("one")
        texts = await fake.wait_sent(len(split_markdown(LONG)))
    assert texts[0].startswith("(A part is missing: Telegram says 400")
    assert texts[1].startswith("Paragraph 5.")


async def test_a_group_that_becomes_a_supergroup_keeps_its_conversation() -> None:
    gate = GatedModel(["one", "two", "three"])
    new = -100_999
    async with talking(Agent("helper", model=gate)) as (talk, fake):
        fake.say("@helper_bot one", chat=GROUP)
        await gate.wait_called()
        fake.migrate(GROUP, new)
        await fake.wait_heard()
        gate.release()
        await fake.wait_sent(1)
        fake.say("@helper_bot two", chat=new)
        await fake.wait_sent(2)
    assert [it["chat"]["id"] for it in fake.sent] == [new, new]
    sessions = {it.session for it in talk.harness.facts(MessageReceived)}
    assert len(sessions) == 1


# How much, and how often.


async def test_a_pause_is_kept_for_its_chat_however_often() -> None:
    settings = with_settings(allow=("telegram:*",))
    async with talking(echoing(), settings) as (talk, fake):
        fake.fail("sendMessage", *(Fault(429, retry_after=30) for _ in range(12)))
        began = trio.current_time()
        fake.say("one")
        await fake.wait_called("sendMessage", 1)
        fake.faults["sendMessage"], held = (
            type(fake.faults["sendMessage"])(),
            list(fake.faults["sendMessage"]),
        )
        fake.say("two", user=8)
        await fake.wait_sent(1)
        assert trio.current_time() - began < 30, "another chat had to wait"
        fake.fail("sendMessage", *held)
        await fake.wait_sent(2)
        assert trio.current_time() - began >= 30 * 12
    assert fake.texts(ADA) == ["You said: one"]
    assert talk.harness.facts(DeliveryFailed) == []


async def test_a_group_gets_no_more_than_twenty_messages_a_minute() -> None:
    async with talking(Agent("helper", model=ScriptedModel.always(LONG))) as (_, fake):
        count = len(split_markdown(LONG))
        for _ in range(30 // count):
            fake.say("@helper_bot more", chat=GROUP)
            await fake.wait_heard()
        await fake.wait_sent(30 // count * count)
    refused = len([name for name, _ in fake.calls if name == "sendMessage"])
    assert refused == len(fake.sent), "Telegram had to refuse some"


async def test_typing_is_shown_during_a_turn_and_never_fails() -> None:
    gate = GatedModel("Done.")
    async with talking(Agent("helper", model=gate)) as (talk, fake):
        fake.fail("sendChatAction", Fault(429, retry_after=600), Fault(), Fault(403), Fault(500))
        fake.say("@helper_bot one", chat=GROUP, topic=TOPIC)
        await fake.wait_called("sendChatAction", 6)
        gate.release()
        await fake.wait_sent(1)
        typed = len(fake.calls)
        await trio.sleep(60)
        assert len(fake.calls) == typed, "it goes on after the turn"
    fields = [it for name, it in fake.calls if name == "sendChatAction"][-1]
    assert fields == {"chat_id": GROUP, "message_thread_id": TOPIC, "action": "typing"}
    assert talk.reports == []


async def test_a_fault_between_parts_goes_on_with_the_next() -> None:
    async with talking(Agent("helper", model=ScriptedModel.always(LONG))) as (talk, fake):
        fake.say("one")
        await fake.wait_sent(1)
        fake.fail("sendMessage", Fault(502, "Bad Gateway"), Fault(), Fault(is_done=True))
        parts = len(split_markdown(LONG))
        await fake.wait_sent(parts + 1)
        await fake.wait_heard()
    texts = fake.texts()
    plain = [it for it in texts if MARK not in it]
    assert len(set(plain)) == len(plain)
    assert [it for it in texts if MARK in it], "a repetition is marked"
    names = {it.replace(MARK, "").strip()[:13] for it in texts}
    assert names == {it.text[:13] for it in split_markdown(LONG)}
    assert len(talk.harness.facts(ReplyPartDelivered)) == parts
    assert len(talk.harness.facts(DeliveryFailed)) == 3


def test_parts_fit_the_limit_of_telegram_and_keep_formatting() -> None:
    fence = "```python\n" + "x = '\N{SLOTH}'\n" * 2_000 + "```"
    parts = split_markdown(f"**Bold** and [a link](https://example.org)\n\n{fence}")
    assert all(utf16_length(it.text) <= 4096 - len(MARK) - 2 for it in parts)
    assert [it["type"] for it in parts[0].formatting] == ["bold", "text_link", "pre"]
    for part in parts[1:]:
        (entity,) = part.formatting
        assert entity["type"] == "pre"
        assert entity["length"] == utf16_length(part.text)
    assert sum(it.text.count("\N{SLOTH}") for it in parts) == 2_000


@pytest.mark.parametrize("text", ["", " \n ", "***", "<!-- -->", "\ud800", "#", "[]()"])
def test_any_text_makes_a_message(text: str) -> None:
    from orchestrator.agents import well_formed

    parts = split_markdown(well_formed(text))
    assert parts
    assert all(it.text.strip() for it in parts)


# What goes wrong.


async def test_another_poller_is_reported_once_and_polling_continues() -> None:
    async with talking(echoing()) as (talk, fake):
        fake.fail("getUpdates", *(Fault(409, "Conflict: other getUpdates") for _ in "123"))
        fake.say("one")
        await fake.wait_sent(1)
    (first, second) = talk.reports
    assert "409: Conflict" in first
    assert "Does another process poll?" in first
    assert second == "telegram: heard again"


async def test_an_existing_webhook_is_removed_and_no_update_is_dropped() -> None:
    async with FakeTelegram().open() as fake:
        fake.say("before")
        fake.webhook = {"url": "http://127.0.0.1:1/gone"}
        talk = Talk(fake, echoing())
        async with talk.open():
            await fake.wait_sent(1)
    assert fake.texts() == ["You said: before"]


async def test_a_revoked_token_ends_the_platform_and_no_other_thing() -> None:
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, echoing())
        with revoked(fake):
            async with talk.open():
                await trio.sleep(600)
        (report,) = talk.reports
        assert "401: Unauthorized. Is the token of the bot right?" in report
        assert TOKEN not in report


async def test_a_user_who_blocks_the_bot_is_answered_again_after_unblocking() -> None:
    gate = GatedModel(["one", "two"])
    settings = with_settings(allow=("telegram:*",))
    async with talking(Agent("helper", model=gate), settings) as (_, fake):
        fake.say("Hello")
        await gate.wait_called()
        fake.chat(ADA).is_blocked = True
        gate.release()
        await trio.sleep(3600)
        calls = [it for name, it in fake.calls if name == "sendMessage"]
        assert len(calls) == 1, "it was asked again and again"
        fake.chat(ADA).is_blocked = False
        fake.say("Hello again")
        await fake.wait_sent(2)
    assert fake.texts() == ["one", "two"]


async def test_a_chat_that_is_gone_is_sent_nothing_by_the_next_process() -> None:
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, echoing())
        async with talk.open():
            fake.chat(ADA).is_blocked = True
            fake.say("one")
            await fake.wait_called("sendMessage")
            await fake.wait_heard()
        fake.chat(ADA).is_blocked = False
        async with talk.open():
            await trio.sleep(3600)
            assert fake.sent == []
            fake.say("two")
            await fake.wait_sent(2)
    assert fake.texts() == ["You said: one", "You said: two"]


async def test_a_network_failure_is_reported_once_and_no_message_is_lost() -> None:
    async with talking(echoing()) as (talk, fake):
        fake.say("one")
        await fake.wait_sent(1)
        fake.fail("getUpdates", *(Fault() for _ in range(9)))
        fake.say("two")
        await fake.wait_sent(2)
        await trio.sleep(600)
    assert len(talk.reports) == 2
    assert "cannot be reached" in talk.reports[0]


async def test_replies_wait_through_an_hour_without_a_network() -> None:
    async with talking(echoing()) as (talk, fake):
        fake.fail("sendMessage", *(Fault() for _ in range(70)))
        fake.say("one")
        began = trio.current_time()
        await fake.wait_sent(1)
        assert trio.current_time() - began > 3600
    # It is not known of the last attempt whether it arrived.
    assert fake.texts() == [f"{MARK}\n\nYou said: one"]
    assert len(talk.harness.facts(DeliveryFailed)) == 8


async def test_a_message_is_acknowledged_only_when_it_is_durable() -> None:
    async with FakeTelegram().open() as fake:
        fake.say("one")
        talk = Talk(fake, echoing())
        with trio.move_on_after(60):
            async with talk.open(crash_after=1):
                await trio.sleep_forever()
        assert fake.unheard == 1
        async with talk.open():
            await fake.wait_sent(1)
            await fake.wait_heard()
    assert [it.text for it in talk.harness.facts(MessageReceived)] == ["one"]


async def test_the_token_is_in_no_report_journal_or_message() -> None:
    agent = Agent("helper", model=ScriptedModel.always(f"The token is {TOKEN}."))
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, agent)
        talk.harness = type(talk.harness)(environ={"TELEGRAM_BOT_TOKEN": TOKEN})
        async with talk.open():
            for method in ("sendMessage", "getUpdates", "getMe", "sendChatAction"):
                fake.fail(method, Fault(), Fault(is_done=True), Fault(500))
            fake.say("one")
            await fake.wait_sent(2)
    everything = "\n".join((*talk.reports, *fake.texts(), talk.facts_text()))
    assert TOKEN not in everything
    assert "http://" not in everything


# Webhook.


@pytest.mark.parametrize("secret", ["", "with a blank", "ä", "a" * 257])
def test_a_webhook_without_a_usable_secret_is_refused(secret: str) -> None:
    with pytest.raises(DefinitionError, match="1 to 256 letters"):
        TelegramWebhook("https://example.org/telegram", secret)


@pytest.mark.realtime
async def test_a_webhook_receives_like_a_poll_and_is_authenticated() -> None:
    secret = "secret_of-a-webhook"
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, echoing())
        listening = Listening(port=0)
        async with talk.harness.open() as orchestrator:
            redactor = orchestrator.read.redactor
            hook = TelegramWebhook("http://127.0.0.1:1/telegram", secret)
            async with (
                open_telegram(TOKEN, webhook=hook, address=fake.address) as telegram,
                open_gateway(orchestrator, talk.agent, [telegram], settings=SETTINGS) as gateway,
                open_chat_webhooks(gateway.webhooks, listening, redactor) as address,
                httpx2.AsyncClient() as client,
            ):
                url = f"{address}/telegram"
                await fake.wait_called("setWebhook")
                assert fake.webhook["secret_token"] == secret
                assert fake.webhook["allowed_updates"] == ["message", "callback_query"]
                fake.webhook["url"] = url
                fake.say("one")
                await fake.wait_sent(1)
                fake.send_last_again()
                await fake.wait_heard()
                update = fake.history[0]
                header = "x-telegram-bot-api-secret-token"
                for headers, body, status in (
                    ({}, b"{}", 401),
                    ({header: "wrong"}, b"{}", 401),
                    ({header: secret}, b"not JSON", 400),
                    ({header: secret}, b"[" * 100_000, 400),
                    ({header: secret}, b"[]", 200),
                    ({header: secret}, b'{"update_id": "x"}', 200),
                    ({header: secret}, b" " * (LARGEST_BODY + 1), 413),
                ):
                    answer = await client.post(url, content=body, headers=headers)
                    assert answer.status_code == status, body[:20]
                assert (await client.get(url)).status_code == 405
                assert (await client.post(f"{address}/other")).status_code == 404
                await client.post(url, json=update, headers={header: secret})
    assert fake.texts() == ["You said: one"]


# Files.


@pytest.mark.realtime
async def test_a_file_comes_into_the_workspace_under_a_harmless_name(tmp_path: Path) -> None:
    model = SpyModel(ScriptedModel.always("Nice."))
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, Agent("helper", model=model))
        async with talk.open(workspace=tmp_path):
            picture = fake.add_file("../../etc/pass wd\n.png", b"\x89PNG1234")
            fake.say(caption="Look", document=picture)
            await fake.wait_sent(1)
            large = fake.add_file("huge.bin", b"x", size=20_000_001)
            fake.say(document=large)
            await fake.wait_sent(2)
            gone = {**fake.add_file("gone.txt", b"x"), "file_id": "file-none"}
            fake.say(document=gone)
            await fake.wait_sent(3)
    (saved,) = (tmp_path / "attachments").iterdir()
    assert saved.name.endswith("-pass wd_.png")
    assert saved.read_bytes() == b"\x89PNG1234"
    first, second, third = talk.harness.facts(MessageReceived)
    assert first.text == f"Look\n[A file came: attachments/{saved.name}, 8 bytes]"
    assert first.parts[0].data == b"\x89PNG1234"
    assert "it has 20000001 bytes, and telegram lets us fetch 20000000" in second.text
    assert "[The file gone.txt did not come: Telegram says 400" in third.text


@pytest.mark.parametrize(
    ("name", "harmless"),
    [
        ("report.pdf", "report.pdf"),
        ("../../.ssh/id_rsa", "id_rsa"),
        ("..", "file"),
        (".bashrc", "bashrc"),
        ("C:\\temp\\a.txt", "a.txt"),
        ("a\x00b\u202e.txt", "a_b_.txt"),
        ("", "file"),
        ("x" * 300 + ".pdf", "x" * 70 + ".pdf"),
        ("Füße (2).txt", "Füße (2).txt"),
    ],
)
def test_names_of_files_are_made_harmless(name: str, harmless: str) -> None:
    assert harmless_name(name) == harmless


@pytest.mark.realtime
async def test_an_agent_sends_only_files_of_its_workspace(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "chart.csv").write_bytes(b"1,2,3")
    (tmp_path / "secret.txt").write_text("no")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "secret.txt")
    calls = [
        [ToolCall("send_file", {"path": path}, id=f"c{index}")]  # type: ignore[arg-type]
        for index, path in enumerate(
            ["chart.csv", "../secret.txt", str(tmp_path / "secret.txt"), "link", "none"]
        )
    ]
    model = SpyModel(ScriptedModel([*calls, "Done."]))
    agent = Agent("helper", model=model, tools=[read_file])
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, agent, SETTINGS)
        async with talk.open(workspace=tmp_path / "work"):
            fake.say("Send it")
            await fake.wait_sent(2)
    assert fake.sent[0]["document"]["file_name"] == "chart.csv"
    assert fake.files["file-0"] == b"1,2,3"
    assert len(fake.files) == 1
    answers = [it.text for it in model.requests[-1].transcript if "call" in repr(it)]
    assert any("was sent, 5 bytes" in it for it in answers)
    assert sum("leads out of the workspace" in it for it in answers) == 3


# Approvals.


def careful(where: str = "there", **given: Any) -> Agent[Any]:
    @tool
    def launch(where: str) -> str:
        """Launch."""
        return f"launched {where}"

    def step(transcript: Any) -> Any:
        last = transcript[-1]
        if type(last).__name__ == "ToolMessage":
            return f"It says: {last.text}"
        return ToolCall("launch", {"where": where})

    return Agent(
        "helper",
        model=ScriptedModel.always(step),
        tools=[launch],
        approve=[confirm("launch")],
        **given,
    )


async def test_an_approval_is_asked_with_buttons_and_the_first_answer_holds() -> None:
    settings = with_settings(allow=("telegram:7", "telegram:9"))
    async with talking(careful(), settings) as (talk, fake):
        said = fake.say("@helper_bot go", chat=GROUP, topic=TOPIC)
        await fake.wait_sent(1)
        question = dict(fake.sent[0])
        rows = question["reply_markup"]["inline_keyboard"]
        buttons = [it for row in rows for it in row]
        assert all(len(it["callback_data"].encode()) <= 64 for it in buttons)
        assert "/helper asks to run launch:" in question["text"]
        assert "Without an answer it is denied in" in question["text"]
        assert question["message_thread_id"] == TOPIC
        assert question["reply_to_message"]["message_id"] == said
        data, id_ = buttons[0]["callback_data"], question["message_id"]
        deny = buttons[-1]["callback_data"]
        stranger = fake.press(id_, data, user=8, chat=GROUP)
        await fake.wait_heard()
        assert talk.harness.facts(ApprovalAnswered) == []
        first = fake.press(id_, data, user=9, chat=GROUP)
        late = fake.press(id_, deny, user=7, chat=GROUP)
        await fake.wait_called("answerCallbackQuery", 2)
        await fake.wait_sent(2)
        await fake.wait_called("editMessageText")
    (answer,) = talk.harness.facts(ApprovalAnswered)
    assert (answer.answer, answer.by) == ("once", "telegram:9, named 'Person 9'")
    assert fake.presses == {
        first: "Approved",
        late: "It was answered already, or its time is over.",
    }
    assert stranger not in fake.presses
    assert "reply_markup" not in fake.sent[0]
    assert fake.sent[0]["text"].endswith("Approved by telegram:9, named 'Person 9'.")
    assert fake.texts()[-1] == "It says: launched there"


def launch_again(transcript: Any) -> Any:
    """Call the tool again and again, each time with another argument."""
    return ToolCall("launch", {"where": f"address {len(transcript)}"})


APPROVE = IncomingMessage(
    id="900",
    address=ChatAddress("telegram", "7"),
    user=ChatUser("7", "Ada"),
    text="/approve",
    anchor="900",
    is_private=True,
)
HIDDEN = " ".join(f"echo step {at};" for at in range(60)) + " id > PWNED; " + "echo done; " * 60


async def test_a_long_question_is_sent_whole_as_a_file() -> None:
    async with talking(careful(HIDDEN)) as (talk, fake):
        fake.say("go")
        await fake.wait_sent(2)
        file, question = fake.sent
        assert HIDDEN in fake.files[file["document"]["file_id"]].decode()
        assert "PWNED" not in question["text"]
        assert "question.txt" in question["text"]
        data = question["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
        fake.press(question["message_id"], data)
        await fake.wait_sent(3)
    assert [it.answer for it in talk.harness.facts(ApprovalAnswered)] == ["once"]


async def test_a_long_question_without_its_file_can_only_be_denied() -> None:
    async with talking(careful(HIDDEN)) as (talk, fake):
        fake.fail("sendDocument", Fault(400, "Bad Request: not enough rights to send documents"))
        fake.say("go")
        await fake.wait_sent(1)
        (question,) = fake.sent
        rows = question["reply_markup"]["inline_keyboard"]
        ((deny,),) = rows
        assert deny["text"] == "Deny"
        assert "it can only be denied here" in question["text"]
        # A program of a person may send any data of a button.
        forged = deny["callback_data"].replace("deny", "session")
        press = fake.press(question["message_id"], forged)
        await fake.wait_called("answerCallbackQuery")
        assert "it can only be denied here" in fake.presses[press]
        fake.say("/approve")
        await fake.wait_sent(2)
        assert "it can only be denied here" in fake.texts()[-1]
        assert talk.harness.facts(ApprovalAnswered) == []
        fake.press(question["message_id"], deny["callback_data"])
        await fake.wait_sent(3)
    assert [it.answer for it in talk.harness.facts(ApprovalAnswered)] == ["deny"]


async def test_a_verdict_names_the_account_whatever_name_it_claims() -> None:
    async with talking(careful()) as (talk, fake):
        fake.say("go")
        await fake.wait_sent(1)
        fake.say("/approve")
        await fake.wait_sent(3)
    (answer,) = talk.harness.facts(ApprovalAnswered)
    assert answer.by.startswith("telegram:7, named ")


async def test_a_linked_chat_approves_no_question_that_another_one_shows() -> None:
    async with talking(careful(), with_settings(allow=("telegram:*",))) as (talk, fake):
        fake.say("go")
        await fake.wait_sent(1)
        fake.say("/link")
        *_, told = await fake.wait_sent(2)
        fake.say(f"/link {told.split()[2]}", chat=GROUP, topic=TOPIC, user=9)
        await fake.wait_sent(3)
        fake.say("/approve session", chat=GROUP, topic=TOPIC, user=9)
        *_, answer = await fake.wait_sent(4)
        assert "it can only be denied here" in answer
        assert talk.harness.facts(ApprovalAnswered) == []
        fake.say("/approve")
        await fake.wait_sent(6)
    assert [it.by[:10] for it in talk.harness.facts(ApprovalAnswered)] == ["telegram:7"]


async def test_an_approve_that_comes_late_answers_no_later_question() -> None:
    """As after an outage: Telegram and Slack deliver it again, minutes or hours later."""
    agent = attrs.evolve(careful(), model=ScriptedModel.always(launch_again))
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, agent)
        async with talk.open() as gateway:
            said = fake.say("go")
            await fake.wait_sent(1)
            # The gateway notes the id of the question when Telegram has answered.
            await trio.testing.wait_all_tasks_blocked()
            late = attrs.evolve(APPROVE, anchor=str(said))
            await gateway.receive(late)
            *_, answer = await fake.wait_sent(2)
    assert answer == "It was answered already, or its time is over."
    assert talk.harness.facts(ApprovalAnswered) == []


async def test_a_button_pressed_elsewhere_does_not_answer() -> None:
    async with talking(careful()) as (talk, fake):
        fake.say("go")
        await fake.wait_sent(1)
        question = fake.sent[0]
        data = question["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
        other = fake.say("@helper_bot hi", chat=GROUP)
        fake.press(other, data, chat=GROUP)
        fake.press(question["message_id"], "frobnicate")
        fake.press(question["message_id"], "once:a_0000000000000000")
        await fake.wait_called("answerCallbackQuery", 3)
    assert talk.harness.facts(ApprovalAnswered) == []


async def test_approvals_are_answered_with_words_too() -> None:
    async with talking(careful()) as (_, fake):
        fake.say("/approve")
        await fake.wait_sent(1)
        fake.say("go")
        await fake.wait_sent(2)
        fake.say("/approve always")
        await fake.wait_sent(3)
        fake.say("/deny not now")
        await fake.wait_sent(5)
    texts = fake.texts()
    assert texts[0] == "No call waits for an approval here."
    assert texts[2] == "Write /approve, /approve task or /approve session."
    assert "launch of /helper is denied." in texts
    assert any("not now" in it for it in texts[3:])


async def test_a_question_is_asked_once_and_closed_by_the_next_process() -> None:
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, careful())
        async with talk.open():
            fake.say("go")
            await fake.wait_sent(1)
            await fake.wait_heard()
        async with talk.open():
            question = fake.sent[0]
            data = question["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
            fake.press(question["message_id"], data)
            await fake.wait_called("editMessageText")
            await fake.wait_sent(2)
    assert fake.texts()[-1] == "It says: launched there"
    assert len(fake.sent) == 2


async def test_a_question_without_an_answer_is_denied_in_time() -> None:
    async with talking(careful()) as (_, fake):
        fake.say("go")
        await fake.wait_sent(2)
        await fake.wait_called("editMessageText")
    assert fake.sent[0]["text"].endswith("Denied by the deadline."), fake.sent[0]["text"]


async def test_a_question_is_asked_and_closed_however_often_that_fails() -> None:
    async with talking(careful()) as (talk, fake):
        fake.fail("sendMessage", Fault(429, retry_after=30), Fault(), Fault(500))
        fake.fail("editMessageText", Fault(429, retry_after=30), Fault(500))
        fake.say("go")
        await fake.wait_sent(1)
        fake.say("/approve session")
        await fake.wait_sent(3)
        await fake.wait_called("editMessageText", 3)
        assert fake.sent[0]["text"].endswith(
            "Approved for this chat by telegram:7, named 'Person 7'."
        )
        fake.say("go again")
        await fake.wait_sent(4)
    assert talk.reports == []
    assert fake.texts()[-1] == "It says: launched there"


async def test_a_question_that_reaches_no_person_is_reported() -> None:
    gate = GatedModel([ToolCall("launch", {"where": "there"})])
    agent = attrs.evolve(careful(), model=gate)
    async with talking(agent) as (talk, fake):
        fake.say("go")
        await gate.wait_called()
        fake.chat(ADA).is_blocked = True
        gate.release(1)
        await trio.sleep(60)
    (report,) = talk.reports
    assert "telegram:7: no person was asked: Telegram says 403" in report


async def test_the_answer_to_a_command_waits_for_a_pause_and_is_no_promise() -> None:
    async with talking(echoing()) as (talk, fake):
        fake.fail("sendMessage", Fault(429, retry_after=30))
        fake.say("/cost")
        await fake.wait_sent(1)
        fake.fail("sendMessage", Fault(is_done=True))
        fake.say("/cost")
        await fake.wait_sent(2)
        await trio.sleep(60)
    assert len(fake.sent) == 2
    assert "a note was not sent: Telegram cannot be reached" in talk.reports[0]


async def test_new_drops_the_rest_of_a_reply() -> None:
    async with talking(Agent("helper", model=ScriptedModel.always(LONG))) as (_, fake):
        fake.say("one")
        await fake.wait_sent(1)
        fake.fail("sendMessage", *(Fault(429, retry_after=100) for _ in range(2)))
        await fake.wait_called("sendMessage", 2)
        fake.say("/new")
        await fake.wait_sent(2)
        await trio.sleep(600)
    assert [it[:12] for it in fake.texts()] == ["Paragraph 0.", "A new conver"]


async def test_messages_during_shutdown_are_read_by_the_next_gateway() -> None:
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, echoing())
        async with talk.open():
            fake.say("one")
            await fake.wait_sent(1)
            await fake.wait_heard()
            await talk.orchestrator.drain(0)
            fake.say("two")
            await trio.sleep(600)
            assert fake.unheard == 1
        async with talk.open():
            await fake.wait_sent(2)
            await fake.wait_heard()
    assert fake.texts() == ["You said: one", "You said: two"]


async def test_a_reply_waits_until_its_platform_returns() -> None:
    gate = GatedModel("Here.")
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, Agent("helper", model=gate))
        async with talk.open():
            fake.say("one")
            await gate.wait_called()
        gate.release()
        async with talk.open(has_telegram=False):
            await trio.sleep(600)
        assert fake.sent == []
        async with talk.open():
            await fake.wait_sent(1)
    failed = {it.error for it in talk.harness.facts(DeliveryFailed)}
    assert failed == {"ChatError: telegram:7 is on a platform that this gateway has not"}
    assert fake.texts() == ["Here."]


# What people send besides text.


async def test_updates_that_are_not_messages_to_the_bot_are_ignored() -> None:
    async with talking(echoing()) as (talk, fake):
        first = fake.say("one")
        await fake.wait_sent(1)
        fake.edit(first, "one, edited")
        fake.say(chat=GROUP, new_chat_title="New")
        fake.say(chat=GROUP, new_chat_members=[{"id": 9, "is_bot": False, "first_name": "B"}])
        fake.say(chat=GROUP, text="nothing for us")
        fake.say(chat=GROUP, text="/new@other_bot")
        bot: dict[str, Any] = {"id": 9, "is_bot": True, "first_name": "B"}
        fields: dict[str, Any] = {"from": bot}
        fake.say("from a bot", **fields)
        fake.say()
        fake.say(" \n ")
        fake.say("two")
        await fake.wait_sent(2)
        await fake.wait_heard()
    said = [it.text for it in talk.harness.facts(MessageReceived)]
    assert said == ["one", "two"]
    assert talk.reports == []


async def test_stickers_polls_places_contacts_and_forwards_are_words() -> None:
    async with talking(echoing()) as (talk, fake):
        option = {"persistent_id": "1", "text": "Yes", "voter_count": 0}
        fake.say(sticker=_sticker("\N{GRINNING FACE}"))
        fake.say(poll=_poll("Pizza?", option))
        fake.say(location={"latitude": 41.9, "longitude": 12.5})
        fake.say(contact={"phone_number": "123", "first_name": "Bob"})
        origin = {"type": "hidden_user", "date": 1, "sender_user_name": "Bob"}
        fake.say("As Bob said", forward_origin=origin)
        fake.say("\N{SLOTH}" * 2_048)
        await fake.wait_heard()
        await trio.sleep(60)
    said = [it.text for it in talk.harness.facts(MessageReceived)]
    assert said[:5] == [
        "[sticker \N{GRINNING FACE}]",
        "[poll: Pizza?]",
        "[location 41.9, 12.5]",
        "[contact Bob, 123]",
        "[forwarded]\nAs Bob said",
    ]
    assert said[5] == "\N{SLOTH}" * 2_048


async def test_an_update_of_another_form_is_skipped_and_reported() -> None:
    async with talking(echoing()) as (talk, fake):
        fake.send_again({"update_id": 1, "message": {"message_id": "seven"}})
        fake.say("two")
        await fake.wait_sent(1)
    assert len(talk.reports) == 1
    assert "an update was passed over" in talk.reports[0]


def _sticker(emoji: str) -> dict[str, Any]:
    return {
        "file_id": "s",
        "file_unique_id": "s",
        "type": "regular",
        "width": 1,
        "height": 1,
        "is_animated": False,
        "is_video": False,
        "emoji": emoji,
    }


def _poll(question: str, option: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "1",
        "question": question,
        "options": [option],
        "total_voter_count": 0,
        "is_closed": False,
        "is_anonymous": True,
        "type": "regular",
        "allows_multiple_answers": False,
        "allows_revoting": False,
        "members_only": False,
    }


async def test_a_repeated_approve_answers_no_other_question() -> None:
    """As after a crash between the answer and its acknowledgement."""
    agent = attrs.evolve(careful(), model=ScriptedModel.always(launch_again))
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, agent)
        async with talk.open() as gateway:
            fake.say("go")
            await fake.wait_sent(1)
            await gateway.receive(APPROVE)
            await fake.wait_sent(3)
            # The gateway notes the id of the question when Telegram has answered.
            await trio.testing.wait_all_tasks_blocked()
        async with talk.open() as gateway:
            await gateway.receive(APPROVE)
            texts = await fake.wait_sent(4)

    assert len(talk.harness.facts(ApprovalAnswered)) == 1
    assert texts[-1] == "It was answered already, or its time is over."
