"""Models beside the agent: the port's requests and events, wrappers, prices, limits, providers."""

from orchestrator.agents import (
    CallDelta,
    Compacted,
    ModelEvent,
    ModelRequest,
    Price,
    Queued,
    ReasoningDelta,
    Retrying,
    Switched,
    TextDelta,
)
from orchestrator.agents.models.http.answer_limits import AnswerLimits
from orchestrator.agents.models.provider_table import PROVIDERS, Provider
from orchestrator.agents.models.registry import model_named
from orchestrator.agents.models.usage_bound import quote
from orchestrator.agents.models.wrappers.attempts import Attempts, AttemptsOf, count_attempts
from orchestrator.agents.models.wrappers.cassette import CassetteError, RecordingModel, ReplayModel
from orchestrator.agents.models.wrappers.compaction import with_compaction
from orchestrator.agents.models.wrappers.fallback import FALLBACK_FAILURES, with_fallback
from orchestrator.agents.models.wrappers.hedge import with_hedge
from orchestrator.agents.models.wrappers.pace import Pace, with_pace
from orchestrator.agents.models.wrappers.prices import PriceTable, with_prices
from orchestrator.agents.models.wrappers.rate_limit import Limiter, with_rate_limit
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper

__all__ = [
    "FALLBACK_FAILURES",
    "PROVIDERS",
    "AnswerLimits",
    "Attempts",
    "AttemptsOf",
    "CallDelta",
    "CassetteError",
    "Compacted",
    "Limiter",
    "ModelEvent",
    "ModelRequest",
    "ModelWrapper",
    "Pace",
    "Price",
    "PriceTable",
    "Provider",
    "Queued",
    "ReasoningDelta",
    "RecordingModel",
    "ReplayModel",
    "Retrying",
    "Switched",
    "TextDelta",
    "count_attempts",
    "model_named",
    "quote",
    "with_compaction",
    "with_fallback",
    "with_hedge",
    "with_pace",
    "with_prices",
    "with_rate_limit",
    "with_retries",
]
