"""A week of mornings in a moment: jobs begin by the clock, and an agent sets one itself.

Trio's clock jumps to the next thing that happens, so a week takes no time. It is the week in which
the clocks of Berlin change: each day has one brief, at eight. On Monday the secretary is asked for
a reminder, and sets a job of its own session; the answer comes to the conversation. Then the brief
is paused for two days.

    orchestrator schedule examples/schedule.py      # the same jobs, by the clock of this machine
"""

from datetime import datetime
from zoneinfo import ZoneInfo

import attrs
import trio
import trio.testing
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, ToolMessage, Transcript, open_orchestrator
from orchestrator.schedule import Delivery, Job, open_schedule

ZONE = "Europe/Berlin"
BERLIN = ZoneInfo(ZONE)


def play(transcript: Transcript) -> ToolCall | str:
    """Play the secretary: set a job when a person asks, and tell what it said."""
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return "I will remind you."
    if last.text.startswith("[Job"):
        return f"By the way: {last.text.splitlines()[-1]}"
    if last.text == "Say that the tea is ready.":
        return "Your tea is ready."
    return ToolCall(
        "job",
        {"action": "set", "name": "tea", "schedule": "in 5m", "goal": "Say that the tea is ready."},
    )


editor = Agent("editor", model=NAMED or ScriptedModel.always("All is well."))
secretary = Agent(
    "secretary",
    model=NAMED or ScriptedModel.always(play),
    instructions="Remind people when they ask you to.",
    schedules=True,
)
schedule = [Job("0 8 * * *", editor, "Write the brief.", name="brief", zone=ZONE)]


async def main() -> None:
    began = datetime(2026, 10, 22, 12, 0, tzinfo=BERLIN).timestamp()
    start = trio.current_time()

    def clock() -> float:
        return began + trio.current_time() - start

    def now() -> str:
        return f"{datetime.fromtimestamp(clock(), BERLIN):%a %H:%M %Z}"

    async def say(delivery: Delivery) -> str:
        await trio.lowlevel.checkpoint()
        print(f"{now()}  {delivery.job}: {delivery.text}")
        return ""

    [brief] = schedule
    async with (
        open_orchestrator(":memory:") as orchestrator,
        open_schedule(
            orchestrator,
            [attrs.evolve(brief, deliver="desk:1")],
            agents=[secretary],
            targets={"desk": say},
            clock=clock,
        ) as scheduler,
        orchestrator.open_session(secretary) as session,
    ):
        await trio.sleep(4 * 24 * 3600)
        reply = await session.ask("Please remind me of the tea in five minutes.")
        print(f"{now()}  secretary: {reply.text}")
        reply = await session.replies.receive()
        print(f"{now()}  secretary: {reply.text}")
        scheduler.pause(scheduler.find("brief"), paused=True)
        await trio.sleep(2 * 24 * 3600)
        scheduler.pause(scheduler.find("brief"), paused=False)
        await trio.sleep(24 * 3600)


if __name__ == "__main__":
    # A real model is waited for, and so is nothing else.
    patience = 20 if NAMED else 0
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=patience))

# prints:
# Fri 08:00 CEST  brief: All is well.
# Sat 08:00 CEST  brief: All is well.
# Sun 08:00 CET  brief: All is well.
# Mon 08:00 CET  brief: All is well.
# Mon 11:00 CET  secretary: I will remind you.
# Mon 11:05 CET  secretary: By the way: Your tea is ready.
# Thu 08:00 CET  brief: All is well.
