"""The summaries that a server keeps for its lists of runs."""

import msgspec
from msgspec.structs import replace

from orchestrator import open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.delegation import SessionId
from orchestrator.ports.journals import summarize
from orchestrator.products.server.run_summaries import MAX_BYTES, RunSummaries

LONG = {f"note {number}": 500 * "x" for number in range(16)}


async def test_summaries_with_long_metadata_stay_within_their_share_of_memory() -> None:
    runs = [SessionId(f"run{number}") for number in range(2_000)]
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(Agent("worker", model=ScriptedModel(["done"])), "go")
        session = orchestrator.read.records.sessions[run.id]
        summary = replace(summarize(session, orchestrator.read.records), metadata=LONG)
        summaries = RunSummaries(orchestrator.read)
        for id_ in runs:
            summaries.keep_stored(replace(summary, id=id_), seq=orchestrator.read.last_seq)

    kept = [it for id_ in runs if (it := summaries.get(id_)) is not None]
    assert [it.id for it in kept] == runs[-len(kept) :]
    assert sum(len(msgspec.json.encode(it)) for it in kept) <= MAX_BYTES
    assert len(kept) > 1_000
