"""A team served over HTTP: a chat completion, and the tree of its answer.

`orchestrator serve examples/served_team.py` does the same from the command line. docs/http.md uses
these agents.
"""

import httpx2
import trio
from models import NAMED

from orchestrator import (
    Agent,
    ScriptedModel,
    ToolCall,
    Transcript,
    confirm,
    open_orchestrator,
    tool,
)
from orchestrator.server import Listening, Settings, open_server

TOKEN = "a-token-of-at-least-16"  # noqa: S105 (of nothing real)


def edit(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        goals = [{"goal": "Read on speed."}, {"goal": "Read on size."}]
        return ToolCall("delegate_task", {"tasks": goals, "background": True})
    return "SQLite will do."


def operate(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        return ToolCall("deploy", {"target": "staging"})
    return f"Done: {transcript[-1].text}"


@tool
async def deploy(target: str) -> str:
    """Deploy what was built.

    Args:
        target: where to.
    """
    await trio.lowlevel.checkpoint()
    return f"deployed to {target}"


helper = Agent("helper", model=NAMED or ScriptedModel.always("It is Lima."))
reader = Agent("reader", model=NAMED or ScriptedModel.always("Small and quick."))
editor = Agent(
    "editor",
    instructions="Have others read, and decide.",
    model=NAMED or ScriptedModel.always(edit),
    delegates=[reader],
)
thinker = Agent("thinker", model=NAMED or ScriptedModel.always("At last.", 3600))
ops = Agent(
    "ops",
    instructions="Deploy what was built.",
    model=NAMED or ScriptedModel.always(operate),
    tools=[deploy],
    approve=[confirm("deploy")],
)


async def main() -> None:
    async with (
        open_orchestrator(":memory:") as orchestrator,
        open_server(
            orchestrator, {"editor": editor}, Settings(token=TOKEN), Listening(port=0)
        ) as server,
        httpx2.AsyncClient(
            base_url=server.addresses[0], headers={"authorization": f"Bearer {TOKEN}"}
        ) as http,
    ):
        question = {"role": "user", "content": "Which database?"}
        answer = await http.post(
            "/v1/chat/completions", json={"model": "editor", "messages": [question]}
        )
        print(answer.json()["choices"][0]["message"]["content"])
        run = answer.headers["x-run-id"]
        tree = (await http.get(f"/v1/runs/{run}/tree")).json()
        for task in tree["nodes"]:
            print(f"  {task['path']}: {task['mode']}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# SQLite will do.
#   /editor: root
#   /editor/reader[1]: joined
#   /editor/reader[2]: joined
