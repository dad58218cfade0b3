"""A panel reviews a change: three reviewers at once, and the majority decides.

`key` decides which votes are equal: reasons differ, decisions are counted. If the change is
rejected, its author reads why and fixes it, and the panel votes again.
"""

import json
from typing import Literal

import attrs
import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, Transcript, agent, delegate, open_orchestrator, vote


@attrs.frozen
class Verdict:
    decision: Literal["approve", "reject"]
    reason: str


@attrs.frozen
class Reviewed:
    change: str
    verdicts: list[Verdict]


FIRST_TRY = """\
-    return fetch("select * from users where name = ?", user)
+    return fetch(f"select * from users where name like '%{user}%'")"""
SECOND_TRY = """\
-    return fetch("select * from users where name = ?", user)
+    return fetch("select * from users where name like ?", f"%{user}%")"""


def reviewer(name: str, question: str, otherwise: str) -> Agent[Verdict]:
    """Return a reviewer of one aspect."""

    def look(transcript: Transcript) -> str:
        if otherwise and "'%{user}%'" in transcript[0].text:
            return json.dumps({"decision": "reject", "reason": otherwise})
        return json.dumps({"decision": "approve", "reason": "Fine with me."})

    return Agent(
        name,
        instructions=f"You review a change for one thing only. {question}",
        output=Verdict,
        model=NAMED or ScriptedModel.always(look),
    )


panel = vote(
    reviewer("security", "Can it be abused?", "A user's name becomes a part of SQL."),
    reviewer("correctness", "Does it do what it says?", "O'Brien is a syntax error."),
    reviewer("style", "Does it read well?", ""),
    key=lambda verdict: verdict.decision,
    least=2,
).named("panel")
author = Agent(
    "author",
    instructions="Mend the change as the reviewer says. Answer with the diff only.",
    model=NAMED or ScriptedModel.always(SECOND_TRY),
)


@agent
async def review(change: str) -> Reviewed:
    """Review a change, and have it mended once if need be."""
    first = await delegate(panel, change)
    if first.decision == "approve":
        return Reviewed(change, [first])
    mended = await delegate(author, f"{change}\nThe reviewer says: {first.reason}")
    return Reviewed(mended, [first, await delegate(panel, mended)])


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(review, FIRST_TRY)
        for verdict in run.output.verdicts:
            print(f"{verdict.decision}: {verdict.reason}")
        print(run.output.change)
        for row in run.tree.rows():
            print(f"{row.branch}{row.name} {row.glyph}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# reject: A user's name becomes a part of SQL.
# approve: Fine with me.
# -    return fetch("select * from users where name = ?", user)
# +    return fetch("select * from users where name like ?", f"%{user}%")
# review ✓
# ├─ panel[1] ✓
# │  ├─ security[1] ✓
# │  ├─ correctness[1] ✓
# │  └─ style[1] ✓
# ├─ author[1] ✓
# └─ panel[2] ✓
#    ├─ security[1] ✓
#    ├─ correctness[1] ✓
#    └─ style[1] ✓
