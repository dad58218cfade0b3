"""A team for the web page beside this file: an editor, a researcher, and a page to publish."""

from typing import Any

from orchestrator import Agent, ScriptedModel, ToolCall, confirm, tool


@tool
def publish(page: str) -> str:
    """Publish a page."""
    return f"{page} is public"


def edit(transcript: Any) -> Any:
    """Ask the researcher, publish the finding after an approval, and tell about it."""
    match len(transcript) % 6:
        case 1:
            task = {"goal": transcript[-1].text, "agent": "researcher"}
            return [
                "I ask the researcher. ",
                ToolCall("delegate_task", {**task, "background": False}),
            ]
        case 3:
            return ToolCall("publish", {"page": "findings"})
        case _:
            return f"Done: {transcript[-1].text}."


researcher = Agent("researcher", model=ScriptedModel.always("Trios are groups of three."))
editor = Agent(
    "editor",
    model=ScriptedModel.always(edit),
    tools=[publish],
    delegates=[researcher],
    approve=[confirm("publish")],
)
