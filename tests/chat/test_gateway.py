"""The gateway: who may talk, which session hears it, and what commands do."""

import re
from pathlib import Path
from random import Random

import httpx2
import pytest
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    DefinitionError,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    tool,
)
from orchestrator.chat import ChatAddress, Inbox, open_gateway, parse_chat_address, read_settings
from orchestrator.delegation import TaskId
from orchestrator.delegation.events import (
    JobOccurred,
    MessageReceived,
    SessionClosed,
    SessionOpened,
)
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalQuestion
from orchestrator.delegation.session_context import get_session_env
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.products.chat.approval_buttons import (
    MOST_SHOWN,
    question_text,
    short_question_text,
)
from orchestrator.products.chat.discord.markup import plain
from orchestrator.products.chat.settings import Limits, Profile
from orchestrator.products.chat.telegram import Telegram, open_telegram
from orchestrator.products.chat.telegram.api import TelegramApi
from orchestrator.schedule import Job
from orchestrator.testing import GatedModel, Harness, SpyModel, StreamingModel, hand_on
from tests.chat.fakes.telegram import TOKEN, FakeTelegram
from tests.chat.gateway_kit import (
    ADA,
    GROUP,
    SETTINGS,
    TOPIC,
    Talk,
    echoing,
    last_message,
    talking,
    with_settings,
)

# Who may talk.


async def test_a_stranger_gets_no_answer() -> None:
    async with talking(echoing()) as (talk, fake):
        fake.say("Let me in", user=8)
        fake.say("/help", user=8)
        fake.say("/pair WRONG", user=8)
        fake.say("Hello", user=ADA)
        await fake.wait_sent(1)
        await fake.wait_heard()
    assert fake.texts() == ["You said: Hello"]
    assert len(talk.harness.facts(MessageReceived)) == 1


async def test_without_settings_no_person_may_talk() -> None:
    async with talking(echoing(), with_settings(allow=())) as (_, fake):
        fake.say("Hello")
        await fake.wait_heard()
    assert fake.sent == []


async def test_a_code_lets_one_person_in_for_good() -> None:
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, echoing())
        async with talk.open() as gateway:
            code = gateway.pairing.new_code()
            fake.say(f"/pair {code.lower()}", user=8)
            await fake.wait_sent(1)
            fake.say(f"/pair {code}", user=9)
            fake.say("Hello", user=8)
            await fake.wait_sent(2)
        async with talk.open():
            fake.say("Still here", user=8)
            fake.say("Me, too", user=9)
            await fake.wait_sent(3)
            await fake.wait_heard()
    assert fake.texts(8)[1:] == ["You said: Hello", "You said: Still here"]
    assert fake.texts(9) == []
    assert talk.reports == ["telegram:8 (Person 8) was paired"]


async def test_a_code_is_void_after_an_hour_and_in_a_group() -> None:
    async with FakeTelegram().open() as fake:
        now = 0.0
        talk = Talk(fake, echoing())
        async with talk.open(clock=lambda: now) as gateway:
            code = gateway.pairing.new_code()
            fake.say(f"/pair {code}", user=8, chat=GROUP)
            await fake.wait_heard()
            now = 3601.0
            fake.say(f"/pair {code}", user=8)
            await fake.wait_heard()
    assert fake.sent == []


async def test_five_wrong_pairing_codes_lock_a_person_out() -> None:
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, echoing())
        async with talk.open() as gateway:
            code = gateway.pairing.new_code()
            for _ in range(5):
                fake.say("/pair GUESSED1", user=8)
            fake.say(f"/pair {code}", user=8)
            await fake.wait_heard()
            fake.say(f"/pair {code}", user=9)
            await fake.wait_sent(1)
    assert fake.texts(8) == []


async def test_only_people_of_the_list_invite_others() -> None:
    async with talking(echoing()) as (_, fake):
        fake.say("/invite")
        (text,) = await fake.wait_sent(1)
        code = text.split()[4]
        fake.say(f"/pair {code}", user=8)
        await fake.wait_sent(2)
        fake.say("/invite", user=8)
        await fake.wait_sent(3)
    assert fake.texts(8)[-1] == "Only people of the operator's list may invite others."


async def test_a_block_wins_over_every_allow() -> None:
    settings = with_settings(allow=("telegram:*",), block=("telegram:8",))
    async with talking(echoing(), settings) as (_, fake):
        fake.say("Hello", user=8)
        fake.say("Hello", user=9)
        await fake.wait_sent(1)
        await fake.wait_heard()
    assert [it["chat"]["id"] for it in fake.sent] == [9]


async def test_a_blocked_person_uses_no_code_and_gets_no_answer() -> None:
    settings = with_settings(allow=("telegram:7",), block=("telegram:8",))
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, echoing(), settings)
        async with talk.open() as gateway:
            code = gateway.pairing.new_code()
            fake.say(f"/pair {code}", user=8)
            await fake.wait_heard()
            fake.say(f"/pair {code}", user=9)
            await fake.wait_sent(1)
            await fake.wait_heard()
    assert [it["chat"]["id"] for it in fake.sent] == [9]


async def test_the_messages_of_a_person_are_limited_per_minute() -> None:
    settings = with_settings(limits=Limits(messages_per_minute=2))
    async with talking(echoing(), settings, clock=trio.current_time) as (_, fake):
        for number in range(3):
            fake.say(str(number))
        await fake.wait_sent(3)
        await trio.sleep(60)
        fake.say("later")
        await fake.wait_sent(4)
    refused = [it for it in fake.texts() if it.startswith("Too many messages.")]
    assert refused == ["Too many messages. Write again in 60 s."]
    assert fake.texts()[-1] == "You said: later"


async def test_a_person_has_a_budget_for_a_day() -> None:
    settings = with_settings(limits=Limits(tokens_per_day=2_000))
    async with talking(echoing(), settings) as (_, fake):
        fake.say("A" * 100)
        await fake.wait_sent(1)
        fake.say("B" * 4_000)
        await fake.wait_sent(2)
    assert fake.texts()[0].startswith("You said: AAA")
    assert fake.texts()[1].startswith("over_budget: ")
    assert "telegram:7" in fake.texts()[1]


# Which session hears it.


async def test_a_reply_goes_to_its_topic_and_answers_its_message() -> None:
    async with talking(echoing()) as (_, fake):
        first = fake.say("@helper_bot one", chat=GROUP, topic=TOPIC)
        second = fake.say("@helper_bot two", chat=GROUP)
        third = fake.say("three")
        await fake.wait_sent(3)
    found = {it["reply_to_message"]["message_id"]: it.get("message_thread_id") for it in fake.sent}
    assert found == {first: TOPIC, second: None, third: None}


async def test_each_topic_has_a_conversation_of_its_own() -> None:
    async with talking(echoing()) as (talk, fake):
        fake.say("@helper_bot one", chat=GROUP, topic=TOPIC)
        fake.say("@helper_bot two", chat=GROUP, topic=13)
        fake.say("@helper_bot three", chat=GROUP, topic=TOPIC)
        await fake.wait_sent(3)
    sessions = [it.session for it in talk.harness.facts(MessageReceived)]
    assert sessions[0] == sessions[2] != sessions[1]
    topics = {it["text"]: it["message_thread_id"] for it in fake.sent}
    assert topics["You said: Person 7: two"] == 13


async def test_in_a_topic_with_a_conversation_no_mention_is_needed() -> None:
    async with talking(echoing()) as (_, fake):
        fake.say("not for us", chat=GROUP, topic=TOPIC)
        fake.say("nor this", chat=GROUP)
        fake.say("@helper_bot begin", chat=GROUP, topic=TOPIC)
        await fake.wait_sent(1)
        fake.say("go on", chat=GROUP, topic=TOPIC)
        await fake.wait_sent(2)
        await fake.wait_heard()
    assert fake.texts() == ["You said: Person 7: begin", "You said: Person 7: go on"]


async def test_a_session_is_found_by_its_address_in_the_next_process() -> None:
    model = SpyModel(ScriptedModel.always("Noted."))
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, Agent("helper", model=model))
        async with talk.open():
            fake.say("My name is Ada")
            await fake.wait_sent(1)
        async with talk.open():
            fake.say("Who am I?")
            await fake.wait_sent(2)
    assert len(talk.harness.facts(SessionOpened)) == 1
    assert len(model.requests[-1].transcript) == 3


async def test_repeated_messages_before_new_are_received_once() -> None:
    """Updates are acknowledged in batches: a crash lets all of them come again."""
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, echoing())
        async with talk.open():
            fake.say("one")
            await fake.wait_sent(1)
            fake.send_last_again()
            await fake.wait_heard()
            fake.say("/new")
            await fake.wait_sent(2)
            again = list(fake.history)
            fake.say("two")
            await fake.wait_sent(3)
        async with talk.open():
            fake.send_again(*again)
            await fake.wait_heard()
            fake.say("three")
            await fake.wait_sent(4)
    said = [it.text for it in talk.harness.facts(MessageReceived)]
    assert said == ["one", "two", "three"]
    assert len(talk.harness.facts(SessionOpened)) == 2


async def test_tools_and_children_know_the_chat() -> None:
    seen: list[list[str]] = []
    names = ("PLATFORM", "CHAT_ID", "THREAD_ID", "USER_ID", "USER_NAME", "MESSAGE_ID")

    @tool
    def look() -> str:
        """Look around."""
        seen.append([get_session_env(f"ORCHESTRATOR_SESSION_{it}") for it in names])
        return "seen"

    look_once = ScriptedModel.always(
        lambda transcript: "Done." if len(transcript) > 2 else hand_look
    )
    hand_look = ToolCall("look", {})
    child = Agent("child", model=look_once, tools=[look])
    lead = Agent(
        "lead",
        model=ScriptedModel([hand_on("look", background=True), "Later.", "Told."]),
        tools=[],
        delegates=[child],
    )
    async with talking(lead) as (_, fake):
        said = fake.say("@helper_bot look", chat=GROUP, topic=TOPIC)
        await fake.wait_sent(2)
    assert seen == [["telegram", str(GROUP), str(TOPIC), "7", "Person 7", str(said)]]
    assert {it["message_thread_id"] for it in fake.sent} == {TOPIC}


async def test_a_private_chat_reads_no_variable_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    names = ("ORCHESTRATOR_SESSION_THREAD_ID", "ORCHESTRATOR_CRON_AUTO_DELIVER_CHAT_ID")
    for name in names:
        monkeypatch.setenv(name, "STALE")

    @tool
    def look() -> str:
        """Look around."""
        seen.extend(get_session_env(name, "default") for name in names)
        return "seen"

    lead = Agent("lead", model=ScriptedModel([ToolCall("look", {}), "Done."]), tools=[look])
    async with talking(lead) as (_, fake):
        fake.say("look")
        await fake.wait_sent(1)
    assert seen == ["", ""]


async def test_results_of_a_detached_task_come_to_the_chat_after_a_restart() -> None:
    gate = GatedModel("42")
    child = Agent("child", model=gate)
    lead = Agent(
        "lead",
        model=ScriptedModel([hand_on("count", background=True), "I am on it.", "It is 42."]),
        delegates=[child],
    )
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, lead)
        async with talk.open():
            said = fake.say("@helper_bot count", chat=GROUP, topic=TOPIC)
            await fake.wait_sent(1)
        async with talk.open():
            gate.release()
            await fake.wait_sent(2)
    assert fake.texts() == ["I am on it.", "It is 42."]
    last = fake.sent[-1]
    assert last["message_thread_id"] == TOPIC
    assert last["reply_to_message"]["message_id"] == said


class BreakingTelegram(Telegram):
    """Breaks when it is first heard, as code of others may."""

    is_broken = True

    async def run(self, inbox: Inbox) -> None:
        if self.is_broken:
            self.is_broken = False
            await trio.lowlevel.checkpoint()
            raise ValueError("it is broken")
        await super().run(inbox)


async def test_a_broken_platform_is_restarted_and_ends_no_other() -> None:
    reports: list[str] = []
    async with (
        FakeTelegram().open() as fake,
        httpx2.AsyncClient() as client,
        Harness().open() as orchestrator,
    ):
        api = TelegramApi(client, TOKEN, address=fake.address)
        breaking = BreakingTelegram(api, TOKEN, None)
        async with open_gateway(
            orchestrator, echoing(), [breaking], settings=SETTINGS, report=reports.append
        ):
            fake.say("one")
            await fake.wait_sent(1)
    assert reports == ["telegram: ValueError: it is broken; it is heard again in a minute"]


async def test_two_platforms_of_one_name_are_refused() -> None:
    async with (
        open_telegram(TOKEN) as one,
        open_telegram(TOKEN) as other,
        Harness().open() as orchestrator,
    ):
        with pytest.raises(DefinitionError, match="two platforms have one name"):
            async with open_gateway(orchestrator, echoing(), [one, other]):
                pass


# Commands.


async def test_new_ends_the_running_turn_and_begins_another_conversation() -> None:
    gate = GatedModel("never")
    async with talking(Agent("helper", model=gate)) as (talk, fake):
        fake.say("work")
        await gate.wait_called()
        fake.say("/new")
        await fake.wait_sent(1)
        gate.release()
        fake.say("/new")
        await fake.wait_sent(2)
        fake.say("again")
        await fake.wait_sent(3)
    assert fake.texts()[-1] == "never"
    assert len(talk.harness.facts(SessionClosed)) == 2


async def test_stop_stops_the_turn_and_the_conversation_goes_on() -> None:
    gate = GatedModel("Back again.")
    async with talking(Agent("helper", model=gate)) as (_, fake):
        fake.say("/stop")
        await fake.wait_sent(1)
        fake.say("work")
        await gate.wait_called()
        fake.say("/stop")
        texts = await fake.wait_sent(2)
        gate.release()
        fake.say("Hello")
        await fake.wait_sent(3)
    assert texts[0] == "Nothing runs here."
    assert texts[1].startswith("cancelled: ")
    assert fake.texts()[2:] == ["Back again."]


async def test_a_stopped_turn_shows_its_words_so_far_in_one_message() -> None:
    model = StreamingModel([["Once ", "upon", trio.Event()]])
    async with talking(Agent("helper", model=model)) as (_, fake):
        fake.say("tell")
        await trio.sleep(10)
        fake.say("/stop")
        texts = await fake.wait_sent(1)
        await trio.sleep(60)
    assert texts == fake.texts() == ["Once upon\n\n(cancelled: it was stopped)"]


async def test_tree_and_cost_show_the_conversation() -> None:
    async with talking(echoing()) as (_, fake):
        fake.say("/tree")
        await fake.wait_sent(1)
        fake.say("Hello")
        await fake.wait_sent(2)
        fake.say("/tree@helper_bot")
        fake.say("/cost")
        await fake.wait_sent(4)
        fake.say("/cost@other_bot")
        await fake.wait_heard()
    texts = fake.texts()
    assert texts[0] == "There is no conversation here yet."
    assert texts[2].startswith("helper  ✓ succeeded")
    assert "1 model calls" in texts[3]
    assert len(texts) == 4


async def test_help_lists_commands_and_an_unknown_command_is_refused() -> None:
    async with talking(echoing()) as (_, fake):
        fake.say("/start")
        fake.say("/frobnicate now")
        fake.say("/etc/passwd is a file")
        await fake.wait_sent(3)
    texts = sorted(fake.texts())
    assert texts[0].startswith("There is no command /frobnicate; /help lists")
    assert "/new — begin a new conversation" in texts[1]
    assert texts[2] == "You said: /etc/passwd is a file"


async def test_a_personality_holds_from_the_next_message_on() -> None:
    model = SpyModel(ScriptedModel.always("Arr."))
    settings = with_settings(
        personalities={"pirate": "Talk like a pirate.", "dry": "Be dry."},
        profiles={"ada": Profile(users=("telegram:7",), personality="dry")},
    )
    async with talking(Agent("helper", model=model), settings) as (_, fake):
        fake.say("one")
        await fake.wait_sent(1)
        fake.say("/personality pirate")
        await fake.wait_sent(2)
        fake.say("two")
        await fake.wait_sent(3)
        fake.say("/personality none")
        await fake.wait_sent(4)
        fake.say("three")
        await fake.wait_sent(5)
        fake.say("/personality")
        fake.say("/personality loud")
        await fake.wait_sent(7)
    instructions = [it.instructions for it in model.requests]
    assert "Be dry." in instructions[0]
    assert "Talk like a pirate." in instructions[1]
    assert "Be dry." not in instructions[1]
    assert "pirate" not in instructions[2]
    assert "dry" not in instructions[2]
    assert "It is none. There are: dry, pirate, none." in fake.texts()
    assert "There is no personality 'loud'; /personality lists them." in fake.texts()


async def test_a_title_is_kept_with_the_conversation() -> None:
    async with talking(echoing()) as (_, fake):
        fake.say("/title")
        await fake.wait_sent(1)
        fake.say("/title The  trip\nto Rome")
        await fake.wait_sent(2)
        fake.say("/title")
        await fake.wait_sent(3)
    assert fake.texts()[0] == "This conversation has no title."
    assert fake.texts()[2] == "The trip to Rome"


async def test_a_profile_has_a_model_and_a_workspace_of_its_own(tmp_path: Path) -> None:
    seen: list[str] = []

    @tool
    def where() -> str:
        """Tell where."""
        seen.append(get_session_env("ORCHESTRATOR_SESSION_CWD"))
        return "there"

    settings = with_settings(
        profiles={"ada": Profile(users=("telegram:7",), model="openai:gpt-5-nano")}
    )
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, echoing(tools=[where]), settings)
        async with talk.open(workspace=tmp_path):
            fake.say("Hello")
            (text,) = await fake.wait_sent(1)
    # The harness has no key of that provider: the profile's model was asked for.
    assert text.startswith("That could not be taken: ")
    assert "OPENAI_API_KEY" in text


async def test_a_conversation_goes_on_in_another_chat() -> None:
    settings = with_settings(allow=("telegram:*",))
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, echoing(), settings)
        async with talk.open():
            fake.say("/link")
            await fake.wait_sent(1)
            fake.say("one")
            await fake.wait_sent(2)
            fake.say("/link")
            *_, told = await fake.wait_sent(3)
            code = told.split()[2]
            fake.say(f"/link {code}", chat=GROUP, topic=TOPIC)
            await fake.wait_sent(4)
            fake.say(f"/link {code}", user=8)
            await fake.wait_sent(5)
        async with talk.open():
            fake.say("two", chat=GROUP, topic=TOPIC)
            await fake.wait_sent(6)
            fake.say("three")
            await fake.wait_sent(7)
            fake.say("/new", chat=GROUP, topic=TOPIC)
            await fake.wait_sent(8)
            fake.say("four")
            await fake.wait_sent(9)
            fake.say("five", chat=GROUP, topic=TOPIC)
            await fake.wait_sent(10)
    assert fake.texts()[0] == "There is no conversation here yet."
    assert fake.texts(8) == ["This code does not hold: it is wrong, an hour old, or was used."]
    facts = talk.harness.facts(MessageReceived)
    sessions = {it.text.rpartition(" ")[2]: it.session for it in facts}
    assert sessions["one"] == sessions["two"] == sessions["three"] == sessions["four"]
    assert sessions["five"] != sessions["one"]
    where = {it["text"].split()[-1]: it["chat"]["id"] for it in fake.sent}
    assert (where["two"], where["three"]) == (GROUP, ADA)
    talk.harness.assert_laws()


@pytest.mark.parametrize("seed", range(4))
async def test_linked_chats_get_the_replies_to_their_own_messages_and_results(seed: int) -> None:
    random = Random(seed)
    origins: dict[str, int] = {}

    def reply(transcript: Transcript) -> str | ToolCall:
        new: list[str] = []
        for message in reversed(transcript):
            if isinstance(message, AssistantMessage) and not message.calls:
                break
            # A notice has the goal of its task, too.
            found = re.findall(r"found-\d+", message.text)
            new += found or re.findall(r"(?:find|say)-\d+", message.text)
        finds = [it for it in new if it.startswith("find-")]
        if finds and isinstance(transcript[-1], UserMessage):
            return hand_on(" ".join(finds), background=True)
        return f"re {' '.join(new)}"

    finder = Agent(
        "finder",
        model=ScriptedModel.always(lambda said: said[0].text.replace("find", "found"), seconds=3),
    )
    lead = Agent("lead", model=ScriptedModel.always(reply, seconds=1), delegates=[finder])
    limits = Limits(messages_per_minute=None)
    async with talking(lead, with_settings(allow=("telegram:*",), limits=limits)) as (talk, fake):
        fake.say("say-0")
        await fake.wait_sent(1)
        fake.say("/link")
        *_, told = await fake.wait_sent(2)
        fake.say(f"/link {told.split()[2]}", chat=GROUP, topic=TOPIC)
        await fake.wait_sent(3)
        for number in range(1, 15):
            chat = random.choice([ADA, GROUP])
            kind = random.choice(["find", "say"])
            text = f"{kind}-{number}"
            origins[text] = chat
            if kind == "find":
                origins[f"found-{number}"] = chat
            if chat == ADA:
                fake.say(text)
            else:
                fake.say(f"@helper_bot {text}", chat=GROUP, topic=TOPIC)
            await trio.sleep(random.choice([0, 0.4, 1.5]))
        await trio.sleep(200)
    answered: dict[str, set[int]] = {}
    for sent in fake.sent:
        for text in re.findall(r"(?:say|found)-\d+", sent["text"].partition("re ")[2]):
            answered.setdefault(text, set()).add(sent["chat"]["id"])
    expected = {text: {chat} for text, chat in origins.items() if not text.startswith("find-")}
    answered.pop("say-0")
    assert answered == expected
    assert len({it.session for it in talk.harness.facts(MessageReceived)}) == 1


@pytest.mark.parametrize("facts", range(5, 10))
async def test_new_is_finished_by_the_next_process(facts: int) -> None:
    """A crash between the next session and the end of the one before leaves none running."""
    gate = GatedModel("Hello.")
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, Agent("helper", model=gate))
        with trio.move_on_after(60):
            async with talk.open(crash_after=facts):
                fake.say("work")
                await gate.wait_called()
                fake.say("/new")
                await trio.sleep_forever()
        async with talk.open():
            await trio.sleep(60)
            assert len(talk.harness.facts(SessionOpened)) == 2
            assert len(talk.harness.facts(SessionClosed)) == 1
            gate.release()
            fake.say("again")
            await fake.wait_sent(1)
            await trio.sleep(60)
    assert fake.texts().count("Hello.") == 1
    talk.harness.assert_laws()


# Jobs.


async def test_a_job_delivers_to_a_chat_and_can_be_replied_to() -> None:
    model = SpyModel(ScriptedModel.always(last_message))
    agent = Agent("helper", model=model)
    writer = Agent("writer", model=ScriptedModel.always("Rome is sunny."))
    job = Job("every 2h", writer, "Write.", deliver=f"telegram:{GROUP}:{TOPIC}")
    async with FakeTelegram().open() as fake:
        fake.chat(GROUP, topics={TOPIC})
        talk = Talk(fake, agent)
        async with talk.open(jobs=[job], clock=trio.current_time):
            await fake.wait_sent(1)
            sent = fake.sent[0]
            assert (sent["text"], sent["message_thread_id"]) == ("Rome is sunny.", TOPIC)
            fake.say("And Milan?", chat=GROUP, topic=TOPIC, reply_to=sent["message_id"])
            await fake.wait_sent(2)
            fake.say("And Turin?", chat=GROUP, topic=TOPIC)
            await fake.wait_sent(3)
    first, second = (it for it in talk.harness.facts(MessageReceived) if "And" in it.text)
    assert "Job writer, due" in first.text
    assert "Rome is sunny." in first.text
    assert "Rome is sunny." not in second.text
    talk.harness.assert_laws()


def remind(transcript: Transcript) -> ToolCall | str:
    """Set a job when a person asks; tell what it said."""
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return "I will."
    if last.text.startswith("[Job tea"):
        return "Your tea!"
    if last.text == "Look.":
        return "It is ready."
    arguments = {"action": "set", "name": "tea", "schedule": "in 30m", "goal": "Look."}
    return ToolCall("job", arguments)


async def test_a_job_that_an_agent_sets_in_a_chat_answers_there_after_a_restart() -> None:
    agent = Agent("helper", model=ScriptedModel.always(remind), schedules=True)
    settings = with_settings(limits=Limits(tokens_per_day=1_000_000))
    async with FakeTelegram().open() as fake:
        fake.chat(GROUP, topics={TOPIC})
        talk = Talk(fake, agent, settings)
        async with talk.open(clock=trio.current_time):
            fake.say("/new", chat=GROUP, topic=TOPIC)
            fake.say("Tea, please", chat=GROUP, topic=TOPIC)
            await fake.wait_sent(2)
        async with talk.open(clock=trio.current_time):
            await fake.wait_sent(3)
    assert fake.texts()[1:] == ["I will.", "Your tea!"]
    assert [it["message_thread_id"] for it in fake.sent[1:]] == [TOPIC, TOPIC]
    [run] = [it for it in talk.harness.facts(SessionOpened) if it.kind is SessionKind.JOB_RUN]
    assert any("chat:telegram:7" in grant.id for grant in run.grants)
    talk.harness.assert_laws()


async def test_the_jobs_of_a_blocked_person_are_skipped() -> None:
    agent = Agent("helper", model=ScriptedModel.always(remind), schedules=True)
    async with FakeTelegram().open() as fake:
        talk = Talk(fake, agent)
        async with talk.open(clock=trio.current_time):
            fake.say("Tea, please")
            await fake.wait_sent(1)
        talk.settings = with_settings(allow=())
        async with talk.open(clock=trio.current_time):
            await trio.sleep(3600)
    [fact] = talk.harness.facts(JobOccurred)
    assert fact.skipped == "telegram:7 may not talk any more"


# Settings.


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("alow = []", "unknown field `alow`"),
        ("allow = 'telegram:7'", "Expected `array`"),
        ("allow = ['7']", "'7' is no person: PLATFORM:USER"),
        ("[limits]\nusd_per_day = 'much'", "Expected `float"),
        ("[profiles.a]\npersonality = 'loud'", "'loud', which is not there"),
        ("allow = [", "Invalid value"),
    ],
)
def test_wrong_settings_are_refused_with_the_file(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    with pytest.raises(DefinitionError) as raised:
        read_settings(file)
    assert str(file) in str(raised.value)
    assert problem in str(raised.value)


def test_the_settings_of_the_example_can_be_read() -> None:
    settings = read_settings(Path("examples/chat/gateway.toml"))
    assert settings.personalities
    assert settings.limits_of("telegram:1") == settings.limits


def test_an_address_is_written_as_it_is_read() -> None:
    for text in ("telegram:7", "telegram:-100200:12"):
        assert str(parse_chat_address(text)) == text
    for wrong in ("telegram", "telegram:", ":7"):
        with pytest.raises(DefinitionError):
            parse_chat_address(wrong)
    assert ChatAddress("a", "b").session(0) != ChatAddress("a", "b").session(1)
    assert ChatAddress("a", "b", "c").session(0) != ChatAddress("a", "bc").session(0)


def question_about(command: str, **more: str) -> ApprovalQuestion:
    return ApprovalQuestion(
        id=ApprovalId("a_1"),
        task=TaskId("t_1"),
        path=more.get("path", "/helper"),
        call=CallId("c_1"),
        tool="terminal",
        subject=command,
        details=f'{{"command": "{command}"}}',
        asked_at=0.0,
        deadline=600.0,
        why=more.get("why", ""),
    )


@pytest.mark.parametrize("padding", ["a", "*", "\N{GRINNING FACE}"])
def test_a_short_question_shows_the_end_of_a_long_command_on_every_platform(padding: str) -> None:
    command = f"echo {padding * 5_000}; rm -rf ~"
    question = question_about(command, path="/a*" * 900, why="_because_ " * 900)
    assert command in question_text(question, 0.0)
    text = short_question_text(question, 0.0, is_whole=True)
    assert "echo" in text
    assert "characters are not shown" in text
    assert "question.txt" in text
    assert "rm -rf ~" in text
    assert "rm -rf \\~" in plain(text), "Discord has the shortest messages"
    assert "in 10 min" in plain(text)
    assert len(text.encode("utf-16-le")) // 2 <= 4096, "Telegram takes no longer one"


def test_a_question_in_one_message_is_whole_on_discord() -> None:
    text = "*" * MOST_SHOWN
    assert plain(text).replace("\\", "") == text
