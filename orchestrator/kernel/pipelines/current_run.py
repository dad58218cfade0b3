"""The pipeline whose program runs here, for `delegate` and `detach`."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from orchestrator.agents import DefinitionError
from orchestrator.kernel.event_loop import require_trio

if TYPE_CHECKING:
    from orchestrator.kernel.pipelines.runner import PipelineRun

_CURRENT_RUN: Final[ContextVar["PipelineRun | None"]] = ContextVar("pipeline run", default=None)


@contextmanager
def use_run(run: "PipelineRun") -> Generator[None]:
    """Make a pipeline the one that `delegate` and `detach` delegate for, in the block."""
    token = _CURRENT_RUN.set(run)
    try:
        yield
    finally:
        _CURRENT_RUN.reset(token)


@contextmanager
def outside_pipeline() -> Generator[None]:
    """Hide the pipeline that runs here from the code of a child."""
    token = _CURRENT_RUN.set(None)
    try:
        yield
    finally:
        _CURRENT_RUN.reset(token)


def leave_pipeline() -> None:
    """Hide the pipeline that runs here from the rest of this trio task, which is a child's."""
    _CURRENT_RUN.set(None)


def is_in_pipeline() -> bool:
    """Return whether the program of a pipeline runs here."""
    return _CURRENT_RUN.get() is not None


def current_pipeline_run(verb: str) -> "PipelineRun":
    """Return the pipeline that runs here."""
    run = _CURRENT_RUN.get()
    if run is None:
        raise DefinitionError(
            f"{verb}() needs a running pipeline: call it in a function with @agent, and run"
            " that agent with orchestrator.run(...)"
        )
    require_trio()
    return run
