"""`GET /v1/overview`: cost, failures and times over many runs, from their summaries."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, TypeVar

import attrs
import msgspec
import trio
from starlette.responses import Response

from orchestrator.products.server.api.bodies import RunSummary
from orchestrator.products.server.api.lookup import LOOKED_AT_MOST, PageQuery, page_of
from orchestrator.products.server.api.runs import RunBodies, RunsQuery
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation, doc

DAY: Final = 86_400
MOST_RUNS: Final = 50_000
"""The most runs that an overview counts."""
LEAST_FOR_P95: Final = 20
"""With fewer runs, a 95th percentile would be the slowest run."""


@attrs.frozen(kw_only=True)
class OverviewQuery:
    """The runs of an overview."""

    days: Annotated[int, msgspec.Meta(ge=1, le=90, description="The number of days until now.")] = (
        30
    )
    agent: Annotated[str, doc("Only runs of this agent.")] = ""
    minutes_east: Annotated[
        int, msgspec.Meta(ge=-1440, le=1440, description="The time zone of the days, from UTC.")
    ] = 0


class Figures(msgspec.Struct, kw_only=True):
    """The sums of some runs."""

    runs: int = 0
    statuses: Annotated[dict[str, int], doc("The number of runs by status.")] = {}
    micro_usd: Annotated[int, doc("Their cost in millionths of a dollar.")] = 0
    unpriced: Annotated[int, doc("Model calls without a known price.")] = 0
    saved_micro_usd: Annotated[int, doc("The discount of the providers' prompt caches.")] = 0
    tokens: Annotated[int, doc("Tokens that models read and wrote.")] = 0
    p50: Annotated[float | None, doc("The median time of the runs that ended, in seconds.")] = None
    p95: Annotated[
        float | None, doc(f"The 95th percentile; null with fewer than {LEAST_FOR_P95} runs.")
    ] = None


FiguresT = TypeVar("FiguresT", bound=Figures)


class DayFigures(Figures, kw_only=True):
    """The runs that began on one day."""

    day: Annotated[str, doc("Such as 2026-11-18.")]


class AgentFigures(Figures, kw_only=True):
    """The runs of one agent."""

    agent: str


class Overview(msgspec.Struct, kw_only=True):
    """The runs of some days, summed up."""

    object: Literal["overview"] = "overview"
    at: Annotated[float, doc("When these figures were read.")]
    is_complete: Annotated[bool, doc("Whether all runs of the days are counted.")]
    total: Figures
    days: Annotated[list[DayFigures], doc("Every day, oldest first.")]
    agents: Annotated[list[AgentFigures], doc("The agents of the runs, slowest first.")]


@Operation("GET", "/v1/overview", Scope.READ, Answer("The figures", Overview), query=OverviewQuery)
async def get_overview(call: ApiCall) -> Response:
    """Sum up your runs of some days; an admin's key sums up the runs of all owners."""
    query = call.query(OverviewQuery)
    now = call.server.keys.now()
    last = _day_of(now, query)
    first = last - query.days + 1
    runs, is_complete = await _runs_since(call, first * DAY - query.minutes_east * 60)
    chosen = [it for it in runs if query.agent in {"", it.agent}]
    days: dict[int, list[RunSummary]] = {number: [] for number in range(first, last + 1)}
    agents: dict[str, list[RunSummary]] = {}
    for run in chosen:
        days.setdefault(_day_of(run.created, query), []).append(run)
        agents.setdefault(run.agent, []).append(run)
    return json_response(
        Overview(
            at=now,
            is_complete=is_complete,
            total=_add_up(Figures(), chosen),
            days=[_add_up(DayFigures(day=_date(it)), found) for it, found in sorted(days.items())],
            agents=sorted(
                (_add_up(AgentFigures(agent=name), found) for name, found in agents.items()),
                key=lambda it: (-(it.p50 or 0), it.agent),
            ),
        )
    )


async def _runs_since(call: ApiCall, since: float) -> tuple[list[RunSummary], bool]:
    """Return the runs that began after a time, and whether these are all."""
    found: list[RunSummary] = []
    after = ""
    await trio.lowlevel.checkpoint()
    while len(found) < MOST_RUNS:
        # Newest first: each page costs its rows, and most summaries are in memory.
        query = PageQuery(limit=LOOKED_AT_MOST, after=after)
        page = await page_of(call, query, RunBodies(RunsQuery()))
        found += [it for it in page.items if it.created >= since]
        is_past = bool(page.items) and page.items[-1].created < since
        if is_past or not page.has_more or page.last is None:
            return found, True
        after = page.last
    return found, False


def _day_of(time: float, query: OverviewQuery) -> int:
    return int(time + query.minutes_east * 60) // DAY


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY, UTC).date().isoformat()


def _add_up(figures: FiguresT, runs: Sequence[RunSummary]) -> FiguresT:
    """Return the figures after these runs."""
    for run in runs:
        usage = run.usage
        figures.micro_usd += usage.micro_usd
        figures.unpriced += usage.unpriced
        figures.saved_micro_usd += usage.saved_micro_usd or 0
        figures.tokens += usage.input_tokens + usage.output_tokens
    figures.runs = len(runs)
    figures.statuses = dict(Counter(it.status for it in runs))
    times = sorted(
        it.ended - it.started for it in runs if it.ended is not None and it.started is not None
    )
    if times:
        figures.p50 = times[len(times) // 2]
    if len(times) >= LEAST_FOR_P95:
        figures.p95 = times[int(len(times) * 0.95)]
    return figures
