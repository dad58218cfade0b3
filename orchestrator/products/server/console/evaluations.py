"""`/console/evaluations`: the evaluations in the journals of a server and in its folder of sets."""

import subprocess
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio
from starlette.responses import Response

from orchestrator.agents.interpreter import run_in_interpreter
from orchestrator.products.evaluation import ports as evaluation
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.transport.errors import JSON, HttpError, not_found

MOST_SETS: Final = 200
"""The most files to read, the newest ones."""


@attrs.frozen(kw_only=True)
class EvaluationQuery:
    """The evaluation or the run to show; by default the list of all evaluations."""

    dataset: str = ""
    baseline: str = ""
    score: str = ""
    run: str = ""


@Operation("GET", "/console/evaluations", Scope.READ, Answer("JSON", Any), errors=(404, 503))
async def get_evaluations(call: ApiCall) -> Response:
    """Return all evaluations, one of them, or one of its runs with its tree."""
    query = call.query(EvaluationQuery)
    key = call.key
    question = evaluation.SetsQuestion(
        files=await _files(call),
        owner=None if key.is_admin else key.recorded_owner,
        **attrs.asdict(query),
    )
    request = msgspec.json.encode(question)
    try:
        async with call.server.evaluations:
            body = await run_in_interpreter(evaluation.answer_question, request)
    except (OSError, subprocess.CalledProcessError) as exc:
        raise HttpError(
            503, "the sets of evaluations cannot be read here", code="sets_unreadable"
        ) from exc
    if body == b"null":
        raise not_found(f"there is no evaluation {query.dataset!r} with {query.run or 'runs'}")
    return Response(body, media_type=JSON)


async def _files(call: ApiCall) -> tuple[str, ...]:
    """Return the files that may have runs of evaluations, the newest last."""
    server = call.server
    held = {it.name: it.read.journal_file for it in server.journals}
    found = [it for it in held.values() if it is not None]
    if server.listing is not None:
        stores = await server.listing.others(held)
        found += [it.file for it in stores if it.file is not None]
    folder = server.settings.evaluations
    if folder is not None:
        found += await trio.to_thread.run_sync(_sets, folder)
    await trio.lowlevel.checkpoint()
    return tuple(str(it) for it in dict.fromkeys(found))


def _sets(folder: Path) -> list[Path]:
    dated = sorted((it.stat().st_mtime, it) for it in folder.glob("*.db") if it.is_file())
    return [it for _, it in dated[-MOST_SETS:]]
