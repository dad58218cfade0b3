"""The agents that the console's tests and pictures show: scripted, and some of them slow.

`orchestrator serve tests/console/team.py`
"""

import random
from base64 import b64decode
from pathlib import Path
from typing import Any

import trio

from orchestrator import (
    Agent,
    AssistantMessage,
    Compaction,
    Failure,
    ModelError,
    Part,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
    agent,
    allow,
    confirm,
    delegate,
    deny,
    map_each,
    tool,
)
from orchestrator.agents.models.wrappers.compaction import with_compaction
from orchestrator.agents.models.wrappers.fallback import with_fallback
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.models import ModelRequest, Price, ReasoningDelta, TextDelta
from orchestrator.tools import FILES, terminal

PRICE = Price(input=1.25, output=10)
ANSWER = """\
## What was found

The build is **green** again. Three things had to change:

1. the cache key now contains the lock file;
2. `make check` runs before `make test`;
3. the flaky test waits for the *event*, not for a second.

```python
async with trio.open_nursery() as nursery:
    nursery.start_soon(watch, events)
```

| suite | before | after |
|---|---|---|
| unit | 15 min | 9 min |
| chaos | 40 min | 38 min |

See <https://example.org/build> for the numbers. <script>alert(1)</script>
"""
HOSTILE = "<img src=x onerror=\"document.title='owned'\"> **bold** [click](javascript:alert(1))"


class SlowModel:
    """Says a text word by word."""

    name = "slow"
    price = PRICE

    def __init__(self, text: str, seconds: float) -> None:
        self._text = text
        self._seconds = seconds

    def count_tokens(self, request: ModelRequest) -> int:
        del request
        return 100

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        words = self._text.split(" ")
        for word in words:
            request.tell(TextDelta(f"{word} "))
            await trio.sleep(self._seconds / len(words))
        usage = Usage(calls=1, input_tokens=100, output_tokens=len(words), micro_usd=2000)
        return AssistantMessage(self._text, usage=usage, model="slow-1")


@tool
async def shell(command: str) -> str:
    """Run a command.

    Args:
        command: the command.
    """
    await trio.lowlevel.checkpoint()
    return f"done: {command}"


def operate(transcript: Transcript) -> Any:
    if len(transcript) == 1:
        return ToolCall("shell", {"command": "rm -r build/"})
    return f"It says: {transcript[-1].text}"


def count_of(goal: str, default: int) -> int:
    digits = "".join(it for it in goal if it.isdigit())
    return int(digits) if digits else default


def plan(transcript: Transcript) -> Any:
    """Delegate as many items as the goal says."""
    if len(transcript) > 1:
        return ANSWER
    many = count_of(transcript[0].text, 6)
    tasks = [{"goal": f"item #{number}", "agent": "researcher"} for number in range(1, many + 1)]
    return ToolCall("delegate_task", {"tasks": tasks, "background": False})


def research(transcript: Transcript) -> Any:
    number = count_of(transcript[0].text, 0)
    if len(transcript) == 1 and number % 3 == 0:
        tasks = [
            {"goal": f"file {number * 100 + it}", "agent": "coder"}
            for it in range(1, 4 + number % 11)
        ]
        return ToolCall("delegate_task", {"tasks": tasks, "background": False})
    if len(transcript) == 1 and number % 7 == 0:
        return ToolCall("delegate_task", {"goal": "clean up", "agent": "operator"})
    if number % 5 == 4:
        return ModelError("503: the provider is overloaded")
    return f"Item {number} is **fine**."


def code(transcript: Transcript) -> Any:
    number = count_of(transcript[0].text, 0)
    if number % 13 == 5:
        return ModelError("503: the provider is overloaded")
    return f"```diff\n- old line {number}\n+ new line {number}\n```"


class Paced(ScriptedModel):
    """A scripted model whose answers take a while, each another one."""

    pace = 0.0
    draws = random.Random(7)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.sleep(self.pace * self.draws.random())
        return await super().answer(request)


def paced(step: Any, pace: float) -> ScriptedModel:
    model = Paced.always(step, price=PRICE)
    model.pace = pace  # type: ignore[attr-defined]
    return model


operator = Agent(
    "operator",
    instructions="Run what is needed.",
    model=ScriptedModel.always(operate, price=PRICE),
    tools=[shell],
    approve=[confirm("shell")],
)
coder = Agent("coder", instructions="Change one file.", model=paced(code, 6))
researcher = Agent(
    "researcher",
    instructions="Look at one item.",
    model=paced(research, 4),
    delegates=[coder, operator],
)
planner = Agent(
    "planner",
    instructions="Split the work, delegate it, and merge the answers.",
    model=paced(plan, 1),
    delegates=[researcher],
)
quick = Agent(
    "quick",
    model=paced(plan, 0.1),
    delegates=[
        Agent(
            "researcher",
            model=paced(research, 0.5),
            delegates=[Agent("coder", model=paced(code, 0.5)), operator],
        )
    ],
)
look = Agent("look", model=paced("found", 0.4))


@agent
async def survey(places: int) -> str:
    """Look at as many places as the goal says, two at a time."""
    await delegate(map_each(look, limit=2), [f"place {it}" for it in range(places)])
    return "All of them were looked at."


writer = Agent("writer", instructions="Write.", model=SlowModel(ANSWER, 3))
talker = Agent("talker", model=SlowModel(ANSWER * 50, 120))
hostile = Agent("hostile", model=ScriptedModel.always(HOSTILE, price=PRICE))
sleeper = Agent("sleeper", model=ScriptedModel.always("At last.", 3600, price=PRICE))
pair = Agent(
    "pair",
    model=ScriptedModel.always(
        lambda transcript: (
            "Both are done."
            if len(transcript) > 1
            else ToolCall(
                "delegate_task", {"tasks": [{"goal": "one"}, {"goal": "two"}], "background": False}
            )
        ),
        price=PRICE,
    ),
    delegates=[sleeper],
)


def converse(transcript: Transcript) -> Any:
    """Have every question looked up in the background."""
    last = transcript[-1]
    if "Output:" in last.text:
        return "The archivist is back: it has **two** roots."
    if isinstance(last, ToolMessage):
        return "I have handed that to the archivist. Go on, I will tell you."
    return ToolCall("delegate_task", {"goal": last.text, "background": True})


companion = Agent(
    "companion",
    instructions="Have every question looked up.",
    model=paced(converse, 0.3),
    delegates=[Agent("archivist", model=SlowModel("Two roots, in C and Python.", 2))],
)


LIST = """\
- [x] open
- [ ] closed

```python
def answer(question: str) -> int:
    return 42  # always
```
"""
FAILED: set[str] = set()


def answer_by_mood(transcript: Transcript) -> Any:
    """Fail once for each message that begins with "fail", and delegate if asked to."""
    last = transcript[-1]
    said = [it.text for it in transcript if isinstance(it, UserMessage)][-1]
    if said.startswith("fail") and said not in FAILED:
        FAILED.add(said)
        return ModelError("402: no money")
    if said == "delegate" and last.text == said:
        return ToolCall("delegate_task", {"goal": "wait", "background": True})
    return LIST if said == "list" else f"Answer to {said}"


fickle = Agent(
    "fickle",
    model=ScriptedModel.always(answer_by_mood, price=PRICE),
    delegates=[sleeper],
    compaction=Compaction(window=20_000),
)


def named(name: str, step: Any) -> ScriptedModel:
    model = ScriptedModel.always(step, price=PRICE)
    model.name = name
    return model


OVERLOADED = ModelError("503: come back later", kind=Failure.OVERLOADED)
troubled = Agent(
    "troubled",
    instructions="Answer, whatever the provider does.",
    model=with_compaction(
        with_fallback(
            with_retries(named("first", OVERLOADED), attempts=2, base_seconds=0.2),
            named("other", "The other model says it."),
        ),
        window=2_000,
    ),
)
stubborn = Agent(
    "stubborn",
    model=with_retries(
        named("stubborn", ModelError("429: not now", kind=Failure.RATE_LIMIT, retry_after=30))
    ),
)


class ThoughtfulModel(SlowModel):
    """Thinks before it says its text."""

    name = "thoughtful"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        for word in ("Let ", "me ", "see ", "<b>this</b>. "):
            request.tell(ReasoningDelta(word))
            await trio.sleep(0.2)
        return await super().answer(request)


thinker = Agent("thinker", model=ThoughtfulModel("I have thought.", 1))
PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mNwmPABK2IYWhIAl01wAUJm3TUA"
    "AAAASUVORK5CYII="
)


@tool
def draw() -> list[str | Part]:
    """Draw a square."""
    return ["a square", Part("image/png", data=PNG, name="square.png")]


painter = Agent(
    "painter",
    model=ScriptedModel.always(
        lambda transcript: (
            ToolCall("draw", {}) if len(transcript) == 1 else '{"drawn": ["a square"]}'
        )
    ),
    tools=[draw],
)
broken = Agent("broken", model=named("broken", ModelError("402: no money", kind=Failure.QUOTA)))


def manage(transcript: Transcript) -> Any:
    """Ask for one task, and after it for another."""
    answered = sum(isinstance(it, ToolMessage) for it in transcript)
    steps = [("operator", "clean up"), ("look", "look around")]
    if answered == len(steps):
        return "Both are done."
    agent, goal = steps[answered]
    task = {"agent": agent, "goal": goal, "background": False}
    return ToolCall("delegate_task", task)


manager = Agent(
    "manager", model=ScriptedModel.always(manage, price=PRICE), delegates=[operator, look]
)


def unsteady(transcript: Transcript) -> Any:
    """Fail until there is a file that says that all is well."""
    del transcript
    return "It holds." if Path("mended").exists() else ModelError("502: bad gateway")


def combine(transcript: Transcript) -> Any:
    """Ask for two tasks at once, and say what came of them."""
    if isinstance(transcript[-1], ToolMessage):
        return f"{transcript[-1].text.count('succeeded')} of 2 are done."
    tasks = [{"agent": "look", "goal": "left"}, {"agent": "unsteady", "goal": "right"}]
    return ToolCall("delegate_task", {"tasks": tasks, "background": False})


combiner = Agent(
    "combiner",
    model=ScriptedModel.always(combine, price=PRICE),
    delegates=[look, Agent("unsteady", model=ScriptedModel.always(unsteady, price=PRICE))],
)

SURVEY = """\
places = ["the north pier", "the old library", "the market"]
# Look at all of them at once.
notes = await gather(*[agent("look", f"Look at {it}") for it in places])
try:
    coins = await agent("broken", "Count the coins")
except RuntimeError:
    coins = "no coins"
log(f"{len(notes)} places, {coins}")

# A person allows the command.
cleaned = await agent("operator", "clean up")
[await agent("look", f"Read the {it} note") for it in ("first", "last")]
"""
surveyor = Agent(
    "surveyor",
    model=ScriptedModel.always(
        lambda transcript: (
            "The survey is done."
            if len(transcript) > 1
            else ToolCall(
                "run_script", {"code": SURVEY, "goal": "Survey the town", "background": False}
            )
        ),
        price=PRICE,
    ),
    delegates=[look, operator, broken],
    scripts=True,
)


def build(transcript: Transcript) -> Any:
    """Write a file, run its tests, and claim that all is well."""
    steps = [
        ToolCall("write_file", {"path": "sum.py", "content": "def add(): ...\n"}),
        ToolCall("terminal", {"command": "exit 1 # pytest <b>"}),
        ToolCall("read_file", {"path": "missing.py"}),
        ToolCall("terminal", {"command": "rm -r build"}),
        ToolCall("delegate_task", {"goal": "pay", "background": False}),
    ]
    answered = sum(isinstance(it, ToolMessage) for it in transcript)
    return steps[answered] if answered < len(steps) else "All tests pass."


builder = Agent(
    "builder",
    model=ScriptedModel.always(build, price=PRICE),
    tools=[*FILES, terminal],
    approve=[deny("terminal", command="rm *", reason="not here"), allow("*")],
    delegates=[broken],
)
foreman = Agent(
    "foreman",
    model=ScriptedModel.always(
        lambda transcript: (
            "It is built."
            if len(transcript) > 1
            else ToolCall("delegate_task", {"goal": "write a program", "background": False})
        ),
        price=PRICE,
    ),
    delegates=[builder],
)


def share(transcript: Transcript) -> Any:
    """Claim the first item, finish it, claim another one and wait."""
    steps = [
        ToolCall("board", {"action": "claim"}),
        ToolCall("board", {"action": "finish", "item": 1, "result": "<b>swept</b>"}),
        ToolCall("board", {"action": "claim"}),
        ToolCall("shell", {"command": "mop"}),
    ]
    answered = sum(isinstance(it, ToolMessage) for it in transcript)
    return steps[answered] if answered < len(steps) else "Enough for today."


sharer = Agent(
    "sharer",
    model=ScriptedModel.always(share, price=PRICE),
    tools=[shell],
    approve=[confirm("shell"), allow("*")],
    board=True,
)


def post_items(transcript: Transcript) -> Any:
    """Post three items, and have them done."""
    items = ["sweep the hall", "mop the stairs", "water the plants"]
    steps = [
        ToolCall("board", {"action": "post", "items": items}),
        ToolCall("delegate_task", {"goal": "help", "background": False}),
    ]
    answered = sum(isinstance(it, ToolMessage) for it in transcript)
    return steps[answered] if answered < len(steps) else "The house is clean."


caretaker = Agent(
    "caretaker", model=ScriptedModel.always(post_items, price=PRICE), delegates=[sharer], board=True
)
