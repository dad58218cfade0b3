"""The agent of a gateway that is killed: it hands each message on, and tells the result later."""

from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, Transcript, UserMessage
from orchestrator.testing import hand_on


def _lead(transcript: Transcript) -> str | ToolCall:
    last = transcript[-1]
    said = [it.text for it in transcript if isinstance(it, UserMessage)][-1]
    if isinstance(last, ToolMessage):
        return f"On it: {said}"
    if "counted " in said:
        counted = said[said.index("counted ") :].split()[1]
        return f"Done: {counted}"
    return hand_on(said, background=True)


def _child(transcript: Transcript) -> str:
    return f"counted {transcript[0].text.split()[-1]}"


child = Agent("child", model=ScriptedModel.always(_child, seconds=0.2))
lead = Agent("lead", model=ScriptedModel.always(_lead), delegates=[child])
