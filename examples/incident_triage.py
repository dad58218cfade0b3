"""Reports are triaged and routed to the right agent; changes of production need an approval.

The rule `confirm("restart")` holds for the operator and its descendants. Here a program answers,
as a chat bot would for the engineer on call. Without an answer in time the call is denied: the
agent reads why and goes on.
"""

import json
from typing import Literal

import trio
from models import NAMED

from orchestrator import (
    Agent,
    ScriptedModel,
    Session,
    ToolCall,
    Transcript,
    confirm,
    open_orchestrator,
    route,
    tool,
)


@tool
def restart(service: str) -> str:
    """Restart a service in production.

    Args:
        service: its name.
    """
    return f"{service} is up again"


def sort_out(transcript: Transcript) -> str:
    return json.dumps("outage" if "down" in transcript[0].text else "question")


def mend(transcript: Transcript) -> str | ToolCall:
    """Restart what the report begins with; then say what came of it."""
    if len(transcript) == 1:
        return ToolCall("restart", {"service": transcript[0].text.split()[0].lower()})
    return f"What came of it: {transcript[-1].text}"


triage = Agent(
    "triage",
    instructions="Is this report an outage, or a question?",
    output=Literal["outage", "question"],
    model=NAMED or ScriptedModel.always(sort_out),
)
operator = Agent(
    "operator",
    instructions="Restart the service that is down. Say what came of it.",
    model=NAMED or ScriptedModel.always(mend),
    tools=[restart],
    approve=[confirm("restart", seconds=300)],
)
support = Agent(
    "support",
    instructions="Answer the question in one sentence.",
    model=NAMED or ScriptedModel.always("Invoices are under Account, Billing."),
)
desk = route(triage, {"outage": operator, "question": support}).named("desk")


async def person_on_call(session: Session) -> None:
    """Answer whatever is asked: restart anything but the database."""
    async for question in session.questions:
        print(f"  {question.path} wants {question.tool} {question.subject}")
        if "database" in question.subject:
            why = "a failover is under way"
            await session.answer(question.id, "deny", reason=why, by="Ann")
        else:
            await session.answer(question.id, "once", by="Ann")


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(desk) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(person_on_call, session)
                for report in (
                    "Where do I find my invoices?",
                    "Checkout is down!",
                    "Database is down!",
                ):
                    print(report)
                    print(f"  {(await session.ask(report)).text}")
                nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)

# prints:
# Where do I find my invoices?
#   Invoices are under Account, Billing.
# Checkout is down!
#   /desk/operator[1] wants restart {"service":"checkout"}
#   What came of it: checkout is up again
# Database is down!
#   /desk/operator[2] wants restart {"service":"database"}
#   What came of it: restart was denied by Ann: a failover is under way. It was not run.
