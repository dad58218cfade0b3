"""The limits of each key: requests per second, runs at once, tokens and dollars per day.

Each number is counted once. The ledger has the runs. The use of a day is a shared budget in the
journal. Every call reserves on it before it is sent, so the sum of a day is exact across
restarts and for any width of a tree.
"""

import datetime as dt
import math
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from orchestrator.agents import Budget
from orchestrator.delegation import Grant, SessionRecord
from orchestrator.ports.journals import Records
from orchestrator.ports.reads import ReadApi
from orchestrator.ports.sessions import use_grants
from orchestrator.products.schedule.ports import UnpaidError
from orchestrator.products.server.keys.key import CONSOLE, DEFAULT, Key
from orchestrator.products.server.request_state import RequestState
from orchestrator.products.server.transport.errors import HttpError

if TYPE_CHECKING:
    from orchestrator.products.server.keys.store import KeyStore

_OF_KEY: Final = Grant.standing("key:", Budget()).id
"""The start of the ids of grants that name the key of a message."""
LONGEST_WAIT: Final = 31_536_000
"""The most seconds that a client is told to wait."""
MOST_BUCKETS: Final = 1_000
"""The number of keys whose pace is remembered; beyond it, keys at rest are forgotten."""


class TokenBucket:
    """A number of requests per second; the savings of one second may be used at once."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._most = max(1.0, rate)
        self._tokens = self._most
        self._at = now

    def take(self, now: float) -> float:
        """Take one request, and return 0; or return the seconds until the next one is allowed."""
        # Setting the clock back takes no tokens away.
        self._tokens = min(self._most, self._tokens + self._saved(now))
        self._at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self.rate
        self._tokens -= 1
        return 0

    def is_full(self, now: float) -> bool:
        """Return whether it is in the state of a new bucket."""
        return self._tokens + self._saved(now) >= self._most

    def _saved(self, now: float) -> float:
        return max(0.0, now - self._at) * self.rate


class Quotas:
    """Holds keys to their limits."""

    def __init__(
        self, journals: Callable[[], Iterable[Records]], clock: Callable[[], float]
    ) -> None:
        """Limit keys; `journals` returns the records of all journals that the server holds now."""
        self._journals = journals
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def take_request(self, key: Key) -> None:
        """Count a request, or refuse it if the key makes too many."""
        rate = key.limits.requests_per_second
        if rate is None:
            return
        now = self._clock()
        bucket = self._buckets.get(key.name)
        if bucket is None or bucket.rate != rate:
            self._forget_those_at_rest(now)
            bucket = self._buckets[key.name] = TokenBucket(rate, now)
        if seconds := bucket.take(now):
            raise too_many(
                f"the key {key.name!r} may make {rate:g} requests per second",
                code="rate_limit_exceeded",
                type_="requests",
                seconds=seconds,
            )

    def _forget_those_at_rest(self, now: float) -> None:
        if len(self._buckets) >= MOST_BUCKETS:
            self._buckets = {
                name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now)
            }

    def begin_run(
        self, key: Key, read: ReadApi, session: SessionRecord | None = None, runs: int = 1
    ) -> AbstractContextManager[None]:
        """Charge the runs that begin in the block, without a checkpoint, or raise at a limit."""
        if session is None or key.name not in _keys_at_work(session):
            self._require_place(key, runs)
        return use_grants(self._grants(key, read.records, session))

    def _require_place(self, key: Key, runs: int) -> None:
        most = key.limits.runs_at_once
        if most is None:
            return
        under_way = sum(
            key.name in _keys_at_work(session)
            for records in self._journals()
            for session in records.sessions.values()
        )
        if under_way + runs > most:
            asked = "" if runs == 1 else f", and this request asks for {runs} more"
            raise too_many(
                f"the key {key.name!r} may have {most} runs at once, and {under_way} are under"
                f" way{asked}; wait for one to end, or cancel one",
                code="too_many_runs",
                type_="requests",
            )

    def _grants(
        self, key: Key, records: Records, session: SessionRecord | None
    ) -> tuple[Grant, ...]:
        """Return the budget of the day."""
        limits = key.limits
        usd, tokens = limits.dollars_per_day, limits.tokens_per_day
        if usd is None and tokens is None:
            if session is not None and _newest_key(session) != key.name:
                # This message counts neither for the runs nor for the budget of the other key.
                return (Grant.standing(f"key:{key.name}", Budget()),)
            return ()
        now = self._clock()
        today = dt.datetime.fromtimestamp(now, dt.UTC).date()
        budget = Budget(usd=usd, tokens=tokens, name=f"of key {key.name} on {today}")
        grant = Grant.standing(f"key:{key.name}:{today}", budget)
        account = records.accounts.get(grant.id)
        if account is not None and (
            (tokens is not None and account.used.tokens >= tokens)
            or (usd is not None and account.used.micro_usd >= round(usd * 1_000_000))
        ):
            tomorrow = dt.datetime.combine(today + dt.timedelta(days=1), dt.time(), dt.UTC)
            raise too_many(
                f"the {budget} is used up; the next day begins at {tomorrow:%H:%M} UTC",
                code="insufficient_quota",
                type_="insufficient_quota",
                seconds=tomorrow.timestamp() - now,
            )
        return (grant,)


class JobCharges:
    """Charges the runs of jobs to the keys of the sessions that set them."""

    def __init__(self, keys: "KeyStore", quotas: Quotas, read: ReadApi) -> None:
        """Charge the runs of jobs in the journal of `read`."""
        self._keys = keys
        self._quotas = quotas
        self._read = read

    @contextmanager
    def charge(self, session: SessionRecord, goes_on: bool) -> Generator[None]:
        """Charge the run in the block to the key of a job's session, or raise `UnpaidError`."""
        name = _newest_key(session)
        if name in {DEFAULT, CONSOLE}:
            # The person who started the server has no limits.
            yield
            return
        key = self._keys.named(name)
        if key is None:
            raise UnpaidError(f"the key {name!r} is no longer valid")
        with ExitStack() as charged:
            try:
                charged.enter_context(
                    self._quotas.begin_run(key, self._read, session if goes_on else None)
                )
            except HttpError as exc:
                raise UnpaidError(str(exc)) from exc
            yield


def _keys_at_work(session: SessionRecord) -> set[str]:
    """Return the keys that a session works for now, or will without a new request."""
    if not _is_under_way(session):
        return set()
    keys = set(_keys_of_mail(session))
    return keys if keys and session.turn is None else {*keys, _present_key(session)}


def _newest_key(session: SessionRecord) -> str:
    """Return the key of the next message, unless the message names another key."""
    return next(reversed(_keys_of_mail(session)), _present_key(session))


def _present_key(session: SessionRecord) -> str:
    """Return the key of the last message that was read; at first, the session's own key."""
    for account in session.accounts:
        if account.id.startswith(_OF_KEY):
            return _key_in(account.id)
    return session.state(RequestState).key_name or DEFAULT


def share_of(keys: "KeyStore", session: SessionRecord) -> tuple[str, float]:
    """Return the key whose part of a provider a session uses, and the weight of its calls."""
    name = _present_key(session)
    key = keys.named(name)
    return name, 1.0 if key is None else key.limits.share or 1.0


def inherited_key(session: SessionRecord) -> tuple[RequestState, ...]:
    """Return the state of a run that begins for a job: it is of the key that set the job."""
    return (RequestState(key_name=session.state(RequestState).key_name),)


def _keys_of_mail(session: SessionRecord) -> list[str]:
    """Return the keys of unread messages whose key differs from the one before."""
    return [
        _key_in(grant.id)
        for envelope in session.envelopes.values()
        for grant in envelope.grants
        if grant.id.startswith(_OF_KEY)
    ]


def _key_in(grant: str) -> str:
    return grant.removeprefix(_OF_KEY).partition(":")[0]


def _is_under_way(session: SessionRecord) -> bool:
    """Return whether a session works now, or will without a new request."""
    is_over = session.closed or session.awaits_resume or session.has_nothing_pending
    return not is_over


def too_many(message: str, *, code: str, type_: str, seconds: float = 1) -> HttpError:
    """Return the error of a request that comes too soon, with codes that OpenAI's clients know."""
    wait = max(1, math.ceil(min(seconds, LONGEST_WAIT)))
    return HttpError(429, message, code=code, type=type_, headers={"retry-after": str(wait)})
