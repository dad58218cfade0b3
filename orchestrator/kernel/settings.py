"""The settings of an orchestrator: its machine, its models and its workers."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from orchestrator.agents import DefinitionError

if TYPE_CHECKING:
    from orchestrator.agents.models.call_order import Policy
    from orchestrator.agents.models.http.answer_limits import AnswerLimits
    from orchestrator.agents.models.provider_table import Provider
    from orchestrator.agents.models.wrappers.prices import PriceTable
    from orchestrator.agents.models.wrappers.rate_limit import Limiter
    from orchestrator.agents.sandbox.choice import SandboxChoice

SANDBOX_VARIABLE: Final = "ORCHESTRATOR_SANDBOX"
HERE_VARIABLE: Final = "ORCHESTRATOR_HERE"


def _names(given: Iterable[str]) -> tuple[str, ...]:
    # A string is a sequence of letters, and each letter would be taken for a name.
    if isinstance(given, str):
        raise DefinitionError(f"{given!r} must be a list; write [{given!r}]")
    return tuple(given)


def _paths(given: "Iterable[str | os.PathLike[str]]") -> tuple[Path, ...]:
    if isinstance(given, str | os.PathLike):
        raise DefinitionError(f"{given!r} must be a list; write [{given!r}]")
    return tuple(map(Path, given))


@attrs.frozen(kw_only=True)
class Machine:
    """The folder, the sandbox and the secrets of tools, on the machine of an orchestrator."""

    workspace: str | os.PathLike[str] | None = None
    """The folder of tools, for agents without a folder; by default the current one."""
    sandbox: "str | SandboxChoice | None" = None
    """The backend that keeps commands inside their `Sandbox`: `"bubblewrap"`, `"landlock"` or
    `"none"`; `"auto"` is the strongest that works here. By default the value of
    ORCHESTRATOR_SANDBOX, else `"auto"`."""
    secrets: tuple[str, ...] = attrs.field(default=(), converter=_names)
    """The names of environment variables whose values are secret, besides those whose names say so
    (`..._KEY`, `..._TOKEN`, `..._PASSWORD`)."""
    hand_on: tuple[str, ...] = attrs.field(default=(), converter=_names)
    """The names of secret variables that the commands of agents get all the same."""
    hide: tuple[Path, ...] = attrs.field(default=(), converter=_paths)
    """Files and folders that no tool of an agent sees, besides the orchestrator's own."""
    environ: Mapping[str, str] | None = None
    """The variables with keys and directories; by default `os.environ`. A value may be a reference
    to a secret, such as `secret:file:/run/secrets/openai`."""
    host: str | None = None
    """The name of the machine in facts about commands and folders; by default the value of
    ORCHESTRATOR_HOST, else its network name."""


@attrs.frozen(kw_only=True)
class Models:
    """How an orchestrator finds, limits and prices models that agents name."""

    providers: "Mapping[str, Provider]" = attrs.field(factory=dict[str, Any])
    """Services that run models, by the names before the colon. They precede the services of the
    file `models.toml` and the built-in ones."""
    limiters: "Mapping[str, Limiter]" = attrs.field(factory=dict[str, Any])
    """Rate limits of providers, by name (`"openai"`)."""
    policy: "str | Policy" = "shortest"
    """The order of calls that a provider without a limiter holds back: `"shortest"`, `"fair"` or
    `"fifo"`."""
    hedge: float | None = None
    """Repeat a call that is slower than this share of the calls of its kind, such as 0.95, and take
    the faster answer. Budgets pay for both calls. None repeats no call."""
    prices: "PriceTable | None" = None
    """The prices of models, instead of the table that we ship."""
    answer_limits: "AnswerLimits | None" = None
    """How much a provider may send for one answer."""


@attrs.frozen(kw_only=True)
class Workers:
    """The places whose tools run in this process, and how workers get the others."""

    here: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(_names)
    )
    """The places whose tools run in this process. By default the places in ORCHESTRATOR_HERE,
    separated by commas."""
    queue: "str | Callable[[], AbstractAsyncContextManager[Any]] | None" = None
    """The work queue, where the journal is in Postgres: `"absurd"`, or a function that connects to
    another one. By default the value of ORCHESTRATOR_QUEUE, else `"absurd"`."""
