"""The team of `orchestrator demo`: an editor and its delegates, with scripted models."""

import json
from typing import Final

from orchestrator.agents import (
    Agent,
    Price,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
)

QUESTION: Final = "Should our team adopt structured concurrency?"
PRETEND_PRICE: Final = Price(input=1.25, output=10)

DOUBTFUL: Final = "What do its users report?"
FINDINGS: Final = {
    "What is it?": "A task never outlives the block that started it.",
    DOUBTFUL: "Fewer leaks, errors that reach somebody, code one can read from top to bottom.",
    "What does moving to it cost?": "New code is easy; every place that starts a task and"
    " forgets it has to name an owner.",
}
ORIGIN: Final = "The idea has two roots: Martin Sústrik's C library and Nathaniel Smith's trio."


def demo_team(seconds: float) -> Agent:
    """Return the editor with its delegates; each model answers after some seconds."""
    checker = Agent(
        "checker",
        instructions="Check one claim.",
        model=ScriptedModel.always("Confirmed.", seconds, price=PRETEND_PRICE),
    )
    researcher = Agent(
        "researcher",
        instructions="Answer one question.",
        model=ScriptedModel.always(_research, seconds, price=PRETEND_PRICE),
        delegates=[checker],
    )
    return Agent(
        "editor",
        instructions="Split a question, delegate its parts, merge the answers.",
        model=ScriptedModel(
            [
                ToolCall(
                    "delegate_task",
                    {
                        "background": False,
                        "tasks": [{"goal": goal, "agent": "researcher"} for goal in FINDINGS],
                    },
                ),
                ToolCall(
                    "delegate_task",
                    {
                        "background": True,
                        "goal": "Where does the idea come from?",
                        "agent": "archivist",
                    },
                ),
                _answer,
                _answer,
            ],
            seconds,
            price=PRETEND_PRICE,
        ),
        delegates=[researcher, _archivist(seconds)],
    )


def chat_agent(seconds: float) -> Agent:
    """Return an agent to chat with, which delegates every question to the archivist."""
    return Agent(
        "companion",
        instructions="Have every question looked up.",
        model=ScriptedModel.always(_converse, seconds, price=PRETEND_PRICE),
        delegates=[_archivist(seconds)],
    )


def _archivist(seconds: float) -> Agent:
    return Agent(
        "archivist",
        instructions="Search the archive. Takes a while.",
        model=ScriptedModel.always(ORIGIN, 4 * seconds, price=PRETEND_PRICE),
    )


def _research(transcript: Transcript) -> str | ToolCall:
    question = transcript[0].text
    if question == DOUBTFUL and len(transcript) == 1:
        # A task has no door for a later notice, so this is joined although it asks for background.
        claim = "Is it true that they report fewer leaks?"
        return ToolCall("delegate_task", {"goal": claim, "background": True})
    return FINDINGS[question]


def _answer(transcript: Transcript) -> str:
    """Merge the results so far, from joined calls and from notices that woke the session."""
    found, pending = _results(transcript)
    notices = [
        message.text.partition("Output:\n")[2]
        for message in transcript[1:]
        if isinstance(message, UserMessage)
    ]
    lines = [f"- {finding}" for finding in [*found, *notices]]
    if pending and not notices:
        lines.append("The archivist is still looking; I will tell you when it comes back.")
    return "\n".join(lines)


def _converse(transcript: Transcript) -> str | ToolCall:
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return "I have handed that to the archivist. Go on, I will tell you."
    if "Output:\n" in last.text:
        _, _, output = last.text.partition("Output:\n")
        return f"The archivist is back: {output}"
    return ToolCall("delegate_task", {"goal": last.text, "background": True})


def _results(transcript: Transcript) -> tuple[list[str], bool]:
    """Return the outputs of joined tasks, and whether any task runs in the background."""
    answers = [
        json.loads(message.text) for message in transcript if isinstance(message, ToolMessage)
    ]
    outputs = [result["output"] for answer in answers for result in answer.get("results", ())]
    return outputs, any(answer["status"] == "dispatched" for answer in answers)
