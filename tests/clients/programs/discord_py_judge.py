"""Checks the fake Discord with discord.py."""

import asyncio
import io
import sys

import discord
import discord.http
import yarl
from discord.gateway import DiscordWebSocket
from judge_kit import run_checks

API, GATEWAY, TOKEN = sys.argv[1:]
GENERAL, THREAD, CLOSED = 7101, 7102, 7999

discord.http.Route.BASE = API
DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(GATEWAY)


class Bot(discord.Client):
    def __init__(self) -> None:
        intents = discord.Intents(guilds=True, guild_messages=True, dm_messages=True)
        intents.message_content = True
        super().__init__(intents=intents)
        self.heard: asyncio.Queue[discord.Message] = asyncio.Queue()
        self.resumed = asyncio.Event()

    async def on_message(self, message: discord.Message) -> None:
        if message.author.id != self.user.id:
            await self.heard.put(message)

    async def on_resumed(self) -> None:
        self.resumed.set()


bot = Bot()


async def wait(awaitable):
    return await asyncio.wait_for(awaitable, 20)


async def it_is_ready_and_knows_the_server() -> None:
    await wait(bot.wait_until_ready())
    assert bot.user.name == "helper"
    (guild,) = bot.guilds
    assert guild.get_channel(GENERAL).name == "general"
    assert guild.get_thread(THREAD).parent_id == GENERAL


async def a_message_is_sent_and_a_reply_is_heard() -> None:
    channel = bot.get_channel(GENERAL)
    sent = await channel.send("say hello")
    heard = await wait(bot.heard.get())
    assert heard.content == "hello"
    assert heard.author.global_name == "Ada"
    assert heard.reference.message_id == sent.id
    answer = await heard.reply("hello back", mention_author=False)
    assert answer.reference.resolved.id == heard.id


async def a_thread_takes_messages() -> None:
    thread = bot.get_channel(THREAD)
    sent = await thread.send("in a thread")
    assert sent.channel.id == THREAD


async def a_long_or_empty_message_is_refused() -> None:
    channel = bot.get_channel(GENERAL)
    for text, code in (("x" * 2001, 50035), ("", 50006)):
        try:
            await channel.send(text)
        except discord.HTTPException as exc:
            assert (exc.status, exc.code) == (400, code), exc
        else:
            raise AssertionError(f"{len(text)} characters were taken")


async def what_is_unknown_or_closed_is_refused() -> None:
    try:
        await bot.fetch_channel(1)
    except discord.NotFound as exc:
        assert exc.code == 10003
    else:
        raise AssertionError("channel 1 is there")
    try:
        await bot.get_channel(CLOSED).send("let me in")
    except discord.Forbidden as exc:
        assert exc.code == 50001
    else:
        raise AssertionError("a closed channel took a message")


async def a_nonce_makes_one_message_of_two() -> None:
    channel = bot.get_channel(GENERAL)
    first, second = [await channel.send("once", nonce="the same") for _ in range(2)]
    # discord.py asks for enforced nonces with every nonce.
    assert first.id == second.id, "it was doubled"


async def an_edit_and_a_deletion_are_taken() -> None:
    sent = await bot.get_channel(GENERAL).send("wrnog")
    edited = await sent.edit(content="wrong")
    assert edited.content == "wrong"
    await sent.delete()
    try:
        await bot.get_channel(GENERAL).fetch_message(sent.id)
    except discord.NotFound as exc:
        assert exc.code == 10008
    else:
        raise AssertionError("it is there still")


async def files_go_and_come() -> None:
    channel = bot.get_channel(GENERAL)
    sent = await channel.send(file=discord.File(io.BytesIO(b"bytes"), "a.bin"))
    assert sent.attachments[0].filename == "a.bin"
    assert await sent.attachments[0].read() == b"bytes"
    await channel.send("send a file")
    heard = await wait(bot.heard.get())
    assert await heard.attachments[0].read() == b"a note"


async def a_button_is_pressed_and_answered() -> None:
    pressed: asyncio.Queue[discord.Interaction] = asyncio.Queue()
    view = discord.ui.View()
    button = discord.ui.Button(label="Approve", custom_id="yes")

    async def callback(interaction: discord.Interaction) -> None:
        await interaction.response.defer()
        await interaction.followup.send("only for you", ephemeral=True)
        await pressed.put(interaction)

    button.callback = callback
    view.add_item(button)
    sent = await bot.get_channel(GENERAL).send("may it?", view=view)
    await bot.get_channel(GENERAL).send("press the button")
    interaction = await wait(pressed.get())
    assert interaction.user.global_name == "Ada"
    assert interaction.message.id == sent.id
    await sent.edit(content="it may", view=None)
    again = await bot.get_channel(GENERAL).fetch_message(sent.id)
    assert (again.content, again.components) == ("it may", [])


async def more_messages_than_a_bucket_has_all_arrive() -> None:
    channel = bot.get_channel(THREAD)
    sent = [await channel.send(f"number {it}") for it in range(7)]
    assert len({it.id for it in sent}) == 7


async def history_is_read_after_a_message() -> None:
    channel = bot.get_channel(THREAD)
    first = await channel.send("first")
    later = [(await channel.send(it)).id for it in ("second", "third")]
    found = [it.id async for it in channel.history(after=first, oldest_first=True)]
    assert found == later, found


async def a_lost_connection_is_resumed_and_nothing_is_missed() -> None:
    for order in ("cut the connection", "ask for another connection"):
        bot.resumed.clear()
        await bot.get_channel(GENERAL).send(order)
        heard = await wait(bot.heard.get())
        assert heard.content == "said meanwhile"
        await wait(bot.resumed.wait())


async def typing_is_shown() -> None:
    await bot.get_channel(GENERAL).typing()


async def a_wrong_token_is_refused() -> None:
    other = discord.Client(intents=discord.Intents.none())
    try:
        await other.login("wrong")
    except discord.LoginFailure:
        pass
    else:
        raise AssertionError("it was taken")
    finally:
        await other.close()


async def main() -> None:
    async with bot:
        runs = asyncio.create_task(bot.start(TOKEN))
        await asyncio.sleep(0)
        await run_checks(
            logged_in,
            it_is_ready_and_knows_the_server,
            a_message_is_sent_and_a_reply_is_heard,
            a_thread_takes_messages,
            a_long_or_empty_message_is_refused,
            what_is_unknown_or_closed_is_refused,
            a_nonce_makes_one_message_of_two,
            an_edit_and_a_deletion_are_taken,
            files_go_and_come,
            a_button_is_pressed_and_answered,
            more_messages_than_a_bucket_has_all_arrive,
            history_is_read_after_a_message,
            a_lost_connection_is_resumed_and_nothing_is_missed,
            typing_is_shown,
            a_wrong_token_is_refused,
        )
        runs.cancel()


async def logged_in() -> None:
    for _ in range(200):
        if bot.user is not None:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("no login")


asyncio.run(main())
