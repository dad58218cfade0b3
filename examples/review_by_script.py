"""A lead writes a script: it reviews every file at once, checks each finding, and sums up.

The script is a task, and so is each call in it. Here the models are scripted; with a real model the
lead writes the script itself.
"""

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, open_orchestrator

SCRIPT = """
import json

async def review(path):
    finding = await agent("reviewer", f"Review {path}")
    verdict = await agent("checker", finding)
    return path, finding, verdict

files = json.loads(await agent("lister", "Which files changed?"))
reviews = await gather(*[review(path) for path in files])
kept = [finding for _, finding, verdict in reviews if verdict == "true"]
log(f"{len(files)} files, {len(kept)} findings kept")
await agent("writer", "\\n".join(kept))
"""


def review(transcript: Transcript) -> str:
    path = transcript[0].text.removeprefix("Review ")
    return f"{path}: the connection is never closed" if path == "db.py" else f"{path}: a long line"


def check(transcript: Transcript) -> str:
    return "true" if "connection" in transcript[0].text else "false"


lister = Agent("lister", model=NAMED or ScriptedModel.always('["app.py", "db.py", "web.py"]'))
reviewer = Agent("reviewer", model=NAMED or ScriptedModel.always(review))
checker = Agent("checker", model=NAMED or ScriptedModel.always(check))
writer = Agent(
    "writer", model=NAMED or ScriptedModel.always(lambda said: f"Fix first: {said[0].text}")
)
lead = Agent(
    "lead",
    instructions="Review the repository with one script.",
    model=NAMED
    or ScriptedModel(
        [
            ToolCall("run_script", {"code": SCRIPT, "goal": "Review all files"}),
            lambda said: said[-1].text,
        ]
    ),
    delegates=[lister, reviewer, checker, writer],
    scripts=True,
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead, "Review the last change.")
        print(run.output)
        for row in run.tree.rows():
            print(f"{row.branch}{row.name} {row.glyph}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# 3 files, 1 findings kept
# Fix first: db.py: the connection is never closed
# lead ✓
# └─ script[1] ✓
#    ├─ lister[1] ✓
#    ├─ reviewer[1] ✓
#    ├─ reviewer[2] ✓
#    ├─ reviewer[3] ✓
#    ├─ checker[1] ✓
#    ├─ checker[2] ✓
#    ├─ checker[3] ✓
#    └─ writer[1] ✓
