"""A run that is shown while it goes on: words as they are written, and tasks as they begin and end.

`orchestrator.stream` gives the events of the whole tree, each once and in order. `run_sync` and
`open_orchestrator(progress="auto")` show the tree without any code of yours.
"""

import trio
from models import NAMED

from orchestrator import (
    Agent,
    ScriptedModel,
    TaskDelegated,
    TaskEnded,
    TextWritten,
    ToolCall,
    ToolCalled,
    Transcript,
    open_orchestrator,
)


def edit(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        return ToolCall("delegate_task", {"goal": "When is high tide?"})
    return "Swim at noon."


harbour = Agent("harbour", model=NAMED or ScriptedModel.always("At noon."))
editor = Agent(
    "editor",
    instructions="Ask the harbour, then advise.",
    model=NAMED or ScriptedModel.always(edit),
    delegates=[harbour],
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(editor, "When shall we swim?") as run:
            async for event in run:
                match event:
                    case TaskDelegated(path=path, goal=goal):
                        print(f"{path} begins: {goal}")
                    case TextWritten(path=path, text=text):
                        print(f"{path}: {text}")
                    case ToolCalled(path=path, call=call):
                        print(f"{path} calls {call.name}")
                    case TaskEnded(path=path, outcome=outcome):
                        print(f"{path} {outcome.ending}")
                    case _:
                        pass


if __name__ == "__main__":
    trio.run(main)


# prints:
# /editor calls delegate_task
# /editor/harbour[1] begins: When is high tide?
# /editor/harbour[1]: At noon.
# /editor/harbour[1] succeeded
# /editor: Swim at noon.
# /editor succeeded
