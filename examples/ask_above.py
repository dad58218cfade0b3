"""Tasks that are estimated to cost more than two dollars wait for a person.

Before the tasks of a call start, they are simulated with the prices of their models. The first
batch is cheap, and starts at once. The second one is a question with the figures.
"""

import trio
from models import NAMED

from orchestrator import (
    Agent,
    Orchestrator,
    ScriptedModel,
    ToolCall,
    Transcript,
    confirm,
    open_orchestrator,
)
from orchestrator.models import Price

PRICE = Price(input=30, output=120)
"""Dollars for a million tokens: about four cents an answer."""


def batch(tasks: int) -> ToolCall:
    goals = [{"goal": f"Read part {number}.", "agent": "reader"} for number in range(tasks)]
    return ToolCall("delegate_task", {"tasks": goals})


def report(transcript: Transcript) -> str:
    """Say what came of each batch."""
    answers = [it.text for it in transcript[2::2]]
    return "\n".join("it ran" if '"status":"completed"' in answer else answer for answer in answers)


reader = Agent("reader", model=NAMED or ScriptedModel.always("Nothing of interest.", price=PRICE))
librarian = Agent(
    "librarian",
    instructions="Have two parts of the archive read, then two hundred.",
    model=NAMED or ScriptedModel([batch(2), batch(200), report], price=PRICE),
    delegates=[reader],
    approve=[confirm("delegate_task", above_usd=2)],
)


async def answer_questions(orchestrator: Orchestrator) -> None:
    async for question in orchestrator.questions:
        tasks, _, _ = question.why.partition(" would cost")
        print(f"{tasks} wait for an answer: {question.why.rpartition('; ')[2]}")
        await orchestrator.answer(question.id, "deny", reason="read ten of them", by="Ann")


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_questions, orchestrator)
            run = await orchestrator.run(librarian, "Look for comets.", attended=True)
            nursery.cancel_scope.cancel()
        print(run.output)


if __name__ == "__main__":
    trio.run(main)

# prints:
# 200 tasks wait for an answer: the rule asks above $2.00
# it ran
# delegate_task was denied by Ann: read ten of them. It was not run.
