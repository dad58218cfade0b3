"""The agent that returns the rest of the budgets to a script: a task, so its answer is durable."""

import trio

from orchestrator.agents import Pipeline, PipelineContext
from orchestrator.kernel.pipelines.current_run import current_pipeline_run


async def _budget_left(_: PipelineContext, __: str) -> dict[str, float | None]:
    await trio.lowlevel.checkpoint()
    left: dict[str, float | None] = {"usd": None, "tokens": None, "calls": None}
    for account in current_pipeline_run("budget_left").accounts:
        limits = (account.budget.usd, account.budget.tokens, account.budget.calls)
        used = (account.used.micro_usd / 1_000_000, account.used.tokens, account.used.calls)
        for kind, limit, spent in zip(left, limits, used, strict=True):
            if limit is not None:
                rest = max(0.0, limit - spent)
                before = left[kind]
                left[kind] = rest if before is None else min(before, rest)
    return left


BUDGET_LEFT: Pipeline[str, dict[str, float | None]] = Pipeline(
    "budget_left",
    instructions="Returns the amounts that the budgets leave.",
    program=_budget_left,
    input=str,
    output=dict[str, float | None],
)
"""Calls under way have not been paid for, and are not subtracted."""
