"""`POST /v1/runs/prune`: deletes or counts old runs of every owner, for the operator."""

from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import JournalInUseError
from orchestrator.ports.journals import AuditEvent, Pruned
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation, doc
from orchestrator.products.server.served_journal import ServedJournal


class NewPruning(msgspec.Struct, kw_only=True):
    """The runs to delete."""

    older_than: Annotated[
        float,
        msgspec.Meta(
            ge=0, le=1e10, description="Delete ended runs without a fact for this many seconds."
        ),
    ]
    dry_run: Annotated[bool, doc("Only count; delete nothing.")] = False


class Pruning(msgspec.Struct, kw_only=True):
    """The runs that were deleted for good, or would be."""

    object: Literal["pruning"] = "pruning"
    dry_run: bool
    runs: Annotated[int, doc("The number of deleted runs and conversations.")]
    active: Annotated[
        int,
        doc(
            "The number of runs that stay at any age, because they are under way,"
            " wait, or have a reply that was not taken."
        ),
    ]
    freed: Annotated[int, doc("The number of bytes by which the journals shrank.")]
    journals_in_use: Annotated[
        int, doc("The number of journals left out because another process writes them.")
    ]


@Operation(
    "POST",
    "/v1/runs/prune",
    Scope.ADMIN,
    Answer("The counts", Pruning),
    body=NewPruning,
    errors=(503,),
)
async def prune_runs(call: ApiCall) -> Response:
    """Delete old runs of all owners for good, or count them."""
    body = await call.body(NewPruning)
    by = None if body.dry_run else call.event_of_pruning()
    before = call.journal.read.now() - body.older_than
    in_use = 0
    done = [await _prune_held(it, before, by) for it in call.server.journals]
    listing = call.server.listing
    held = {it.name for it in call.server.journals}
    for store in () if listing is None else await listing.others(held):
        try:
            if by is not None:
                done.append(await store.prune(before=before, audit=(call.server.keys.now(), by)))
            elif listing is not None:
                done.append(await listing.preview_prune(store, before))
        except JournalInUseError:
            in_use += 1
    if not body.dry_run:
        # The list of each journal's sessions covers all journals.
        for journal in call.server.journals:
            journal.door.note_pruned()
    return json_response(
        Pruning(
            dry_run=body.dry_run,
            runs=sum(it.runs for it in done),
            active=sum(it.active for it in done),
            freed=sum(it.freed for it in done),
            journals_in_use=in_use,
        )
    )


async def _prune_held(journal: ServedJournal, before: float, by: AuditEvent | None) -> Pruned:
    """Delete runs of a journal that this server writes."""
    orchestrator = journal.orchestrator
    if by is not None:
        pruned = await orchestrator.prune(before=before, by=by)
    else:
        pruned = await orchestrator.preview_prune(before=before)
    scheduled = journal.read.records.scheduled.values()
    jobs = sum(it.kind is SessionKind.JOB for it in scheduled)
    return replace(pruned, active=pruned.active - jobs)
