"""Checks the fake Discord with hikari."""

import asyncio
import sys

import hikari
from judge_kit import run_checks

API, _, TOKEN = sys.argv[1:]
GENERAL, THREAD, CLOSED = 7101, 7102, 7999

bot = hikari.GatewayBot(
    TOKEN,
    rest_url=API,
    banner=None,
    logs=None,
    intents=hikari.Intents.GUILDS
    | hikari.Intents.GUILD_MESSAGES
    | hikari.Intents.DM_MESSAGES
    | hikari.Intents.MESSAGE_CONTENT,
)
heard: asyncio.Queue[hikari.Message] = asyncio.Queue()
pressed: asyncio.Queue[hikari.ComponentInteraction] = asyncio.Queue()
resumed = asyncio.Event()


@bot.listen()
async def on_message(event: hikari.MessageCreateEvent) -> None:
    if event.is_human:
        await heard.put(event.message)


@bot.listen()
async def on_press(event: hikari.InteractionCreateEvent) -> None:
    await pressed.put(event.interaction)


@bot.listen()
async def on_resumed(_: hikari.ShardResumedEvent) -> None:
    resumed.set()


async def wait(awaitable):
    return await asyncio.wait_for(awaitable, 20)


async def it_is_ready_and_knows_the_server() -> None:
    me = await bot.rest.fetch_my_user()
    assert me.username == "helper"
    channel = await bot.rest.fetch_channel(GENERAL)
    assert channel.name == "general"
    thread = await bot.rest.fetch_channel(THREAD)
    assert thread.parent_id == GENERAL


async def a_message_is_sent_and_a_reply_is_heard() -> None:
    sent = await bot.rest.create_message(GENERAL, "say hello")
    found = await wait(heard.get())
    assert found.content == "hello"
    assert found.referenced_message.id == sent.id
    answer = await found.respond("hello back", reply=True)
    assert answer.referenced_message.id == found.id


async def what_is_wrong_is_refused() -> None:
    for text in ("x" * 2001, ""):
        try:
            await bot.rest.create_message(GENERAL, text)
        except hikari.BadRequestError as exc:
            assert exc.code in {50035, 50006}, exc
        else:
            raise AssertionError(f"{len(text)} characters were taken")
    try:
        await bot.rest.fetch_channel(1)
    except hikari.NotFoundError as exc:
        assert exc.code == 10003
    else:
        raise AssertionError("channel 1 is there")
    try:
        await bot.rest.create_message(CLOSED, "let me in")
    except hikari.ForbiddenError as exc:
        assert exc.code == 50001
    else:
        raise AssertionError("a closed channel took a message")


async def files_go_and_come() -> None:
    sent = await bot.rest.create_message(GENERAL, attachment=hikari.Bytes(b"bytes", "a.bin"))
    assert await sent.attachments[0].read() == b"bytes"
    await bot.rest.create_message(GENERAL, "send a file")
    found = await wait(heard.get())
    assert await found.attachments[0].read() == b"a note"


async def a_button_is_pressed_and_answered() -> None:
    row = bot.rest.build_message_action_row()
    row.add_interactive_button(hikari.ButtonStyle.SECONDARY, "yes", label="Approve")
    sent = await bot.rest.create_message(GENERAL, "may it?", component=row)
    await bot.rest.create_message(GENERAL, "press the button")
    interaction = await wait(pressed.get())
    assert interaction.custom_id == "yes"
    assert interaction.message.id == sent.id
    await interaction.create_initial_response(hikari.ResponseType.DEFERRED_MESSAGE_UPDATE)
    await interaction.execute("only for you", flags=hikari.MessageFlag.EPHEMERAL)
    edited = await bot.rest.edit_message(GENERAL, sent.id, "it may", components=[])
    assert (edited.content, list(edited.components)) == ("it may", [])


async def more_messages_than_a_bucket_has_all_arrive() -> None:
    sent = [await bot.rest.create_message(THREAD, f"number {it}") for it in range(7)]
    assert len({it.id for it in sent}) == 7


async def history_is_read_after_a_message() -> None:
    first = await bot.rest.create_message(THREAD, "first")
    later = [(await bot.rest.create_message(THREAD, it)).id for it in ("second", "third")]
    found = [it.id async for it in bot.rest.fetch_messages(THREAD, after=first.id)]
    assert found == later, found


async def a_lost_connection_is_resumed_and_nothing_is_missed() -> None:
    for order in ("cut the connection", "ask for another connection"):
        resumed.clear()
        await bot.rest.create_message(GENERAL, order)
        found = await wait(heard.get())
        assert found.content == "said meanwhile"
        await wait(resumed.wait())


async def main() -> None:
    await bot.start()
    await run_checks(
        it_is_ready_and_knows_the_server,
        a_message_is_sent_and_a_reply_is_heard,
        what_is_wrong_is_refused,
        files_go_and_come,
        a_button_is_pressed_and_answered,
        more_messages_than_a_bucket_has_all_arrive,
        history_is_read_after_a_message,
        a_lost_connection_is_resumed_and_nothing_is_missed,
    )
    await bot.close()


asyncio.run(main())
