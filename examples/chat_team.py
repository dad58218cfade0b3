"""A team that people reach on Telegram: an answer now, and the result when it is there.

This program talks to a Telegram that is played on this machine. With a bot of your own:

    TELEGRAM_BOT_TOKEN=... orchestrator gateway examples/chat_team.py --telegram --pair
"""

import json
import sys
from pathlib import Path

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, open_orchestrator


def answer(transcript: Transcript) -> str | ToolCall:
    text = transcript[-1].text
    if text == "Where is the atlas?":
        return ToolCall("delegate_task", {"goal": "Find the atlas of 1570."})
    if text.startswith("{"):
        assert json.loads(text)["status"] == "dispatched"
        return "The archivist is looking. I will **let you know**."
    return f"The archivist is back: {text.splitlines()[-1]}"


archivist = Agent(
    "archivist",
    instructions="Find what you are asked for.",
    model=NAMED or ScriptedModel.always("It is in the cellar.", seconds=0.2),
)
librarian = Agent(
    "librarian",
    instructions="Have the archivist look things up, in the background.",
    model=NAMED or ScriptedModel.always(answer),
    delegates=[archivist],
)


async def main() -> None:
    sys.path.append(str(Path(__file__).parent.parent))
    from orchestrator.chat import GatewaySettings, open_gateway, open_telegram
    from tests.chat.fakes.telegram import TOKEN, FakeTelegram

    settings = GatewaySettings(allow=("telegram:7",))
    async with (
        FakeTelegram().open() as played,
        open_telegram(TOKEN, address=played.address) as telegram,
        open_orchestrator(":memory:") as orchestrator,
        open_gateway(orchestrator, librarian, [telegram], settings=settings),
    ):
        played.say("Where is the atlas?", user=8)  # a stranger, who gets nothing
        played.say("Where is the atlas?", user=7)
        for text in await played.wait_sent(2):
            print(text)
        played.say("/tree", user=7)
        *_, tree = await played.wait_sent(3)
        for line in tree.splitlines():
            print(*line.split()[:3])


if __name__ == "__main__":
    trio.run(main)

# prints:
# The archivist is looking. I will let you know.
# The archivist is back: It is in the cellar.
# librarian ✓ succeeded
# └─ archivist[1] ✓
