"""Classifies what providers answer when they fail: a `Failure` for each status, code or phrase.

The same failure comes as a status, a code, a type or only in prose; the most specific decides.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast

import msgspec

from orchestrator.agents.errors import Failure
from orchestrator.agents.models.http.answer_errors import UnusableAnswerError

LONGEST_ERROR: Final = 64 * 2**10
"""How many bytes of an error are read."""
NO_JSON: Final = msgspec.Raw(b"null")
_EMPTY: Final = frozenset({b"null", b'""', b"{}", b"[]", b"false", b"0"})
LONGEST_EMPTY: Final = max(map(len, _EMPTY))

# More specific than the status, or in contradiction to it: a spent account is a 429 at OpenAI.
_BY_CODE: Final = {
    "insufficient_quota": Failure.QUOTA,
    "billing_error": Failure.QUOTA,
    "billing_hard_limit_reached": Failure.QUOTA,
    "billing_not_active": Failure.QUOTA,
    "enforced_spend_limit_reached": Failure.QUOTA,
    "context_length_exceeded": Failure.CONTEXT_TOO_LONG,
    "exceed_context_size_error": Failure.CONTEXT_TOO_LONG,
    "request_too_large": Failure.CONTEXT_TOO_LONG,
    "content_filter": Failure.REFUSED,
    "content_policy_violation": Failure.REFUSED,
    "invalid_prompt": Failure.REFUSED,
    "invalid_api_key": Failure.AUTH,
}
_BY_PHRASE: Final = {
    "credit balance is too low": Failure.QUOTA,
    "exceeded your current quota": Failure.QUOTA,
    "api usage limits": Failure.QUOTA,
    "prompt is too long": Failure.CONTEXT_TOO_LONG,
    "maximum context length": Failure.CONTEXT_TOO_LONG,
    "exceed context limit": Failure.CONTEXT_TOO_LONG,
    "available context size": Failure.CONTEXT_TOO_LONG,
    "content management policy": Failure.REFUSED,
}
_BY_STATUS: Final = {
    401: Failure.AUTH,
    402: Failure.QUOTA,
    403: Failure.AUTH,
    408: Failure.TIMEOUT,
    413: Failure.CONTEXT_TOO_LONG,
    429: Failure.RATE_LIMIT,
    504: Failure.TIMEOUT,
}
# An error in the middle of a stream has no status.
_BY_TYPE: Final = {
    "rate_limit_error": Failure.RATE_LIMIT,
    "rate_limit_exceeded": Failure.RATE_LIMIT,
    "overloaded_error": Failure.OVERLOADED,
    "api_error": Failure.OVERLOADED,
    "server_error": Failure.OVERLOADED,
    "internal_server_error": Failure.OVERLOADED,
    "timeout_error": Failure.TIMEOUT,
    "authentication_error": Failure.AUTH,
    "permission_error": Failure.AUTH,
    "invalid_request_error": Failure.BAD_REQUEST,
    "not_found_error": Failure.BAD_REQUEST,
    # The exceptions of a stream of AWS.
    "throttlingException": Failure.RATE_LIMIT,
    "serviceUnavailableException": Failure.OVERLOADED,
    "internalServerException": Failure.OVERLOADED,
    "modelStreamErrorException": Failure.OVERLOADED,
    "modelTimeoutException": Failure.TIMEOUT,
    "validationException": Failure.BAD_REQUEST,
}
_SENTENCES: Final = {
    Failure.RATE_LIMIT: "has reached its rate limit",
    Failure.OVERLOADED: "is overloaded or out of order",
    Failure.TIMEOUT: "took too long to answer",
    Failure.AUTH: "refused the API key",
    Failure.QUOTA: "has no credit left in this account",
    Failure.CONTEXT_TOO_LONG: "cannot read a request of this length",
    Failure.BAD_REQUEST: "refused the request",
    Failure.REFUSED: "refused to answer",
}


def status_error(status: int, headers: Mapping[str, str], answer: bytes) -> UnusableAnswerError:
    """Return the error for an answer with this status."""
    text = answer.decode(errors="replace").strip()
    kind = _kind(status, _codes_and_text(text))
    after = _retry_after(headers)
    return UnusableAnswerError(kind, _sentence(kind, status, text, after), after)


def _sentence(kind: Failure, status: int, text: str, after: float | None) -> str:
    """Return a failure for people: its kind, when to try again, and the provider's own message."""
    sentence = f"{_SENTENCES.get(kind, 'failed')} (HTTP {status})"
    if after is not None and kind.is_transient:
        sentence += f", try again in {math.ceil(after)} s"
    said = _message_in(text)
    return f"{sentence}: {said}" if said else sentence


def _message_in(text: str) -> str:
    """Return the message of an error in JSON; else the whole text."""
    try:
        error = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return text
    inner = _inside(error, "error")
    for said in (inner.get("message"), error.get("message"), error.get("error")):
        if isinstance(said, str) and said.strip():
            return said.strip()
    return text


def has_value(field: msgspec.Raw) -> bool:
    """Return whether a field holds anything: some servers send an empty one with every piece."""
    return len(field) > LONGEST_EMPTY or bytes(field) not in _EMPTY


def stream_error(error: bytes | msgspec.Raw) -> UnusableAnswerError:
    """Return the error for one that a provider sent in place of an answer, as JSON."""
    text = bytes(error)[:LONGEST_ERROR].decode(errors="replace")
    with suppress(msgspec.MsgspecError):
        text = msgspec.json.decode(text, type=str)
    codes, lowered = _codes_and_text(text)
    statuses = [int(code) for code in codes if code.isdecimal() and len(code) == 3]
    return UnusableAnswerError(
        _kind(statuses[0] if statuses else 0, (codes, lowered)), f"failed: {text}"
    )


def _codes_and_text(text: str) -> tuple[list[str], str]:
    """Return the codes of an error, and its text in lower case."""
    try:
        error = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return [], text.lower()
    # The error itself, or inside an envelope; its details may have a code of their own.
    inner = _inside(error, "error")
    return [
        str(part[name])
        for part in (_inside(inner, "details"), inner, error)
        for name in ("code", "type", "error_code")
        if isinstance(part.get(name), str | int)
    ], text.lower()


def _inside(error: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = error.get(name)
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else error


def _kind(status: int, codes_and_text: tuple[list[str], str]) -> Failure:
    codes, text = codes_and_text
    for code in codes:
        if code in _BY_CODE:
            return _BY_CODE[code]
    for phrase, kind in _BY_PHRASE.items():
        # An error of the server may quote anything; an error of the request names its reason.
        if status < 500 and phrase in text:
            return kind
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return Failure.OVERLOADED
    if status >= 400:
        return Failure.BAD_REQUEST
    return next((_BY_TYPE[code] for code in codes if code in _BY_TYPE), Failure.OTHER)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which the provider asks for a retry, if it names any."""
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    after = headers.get("retry-after", "")
    if (seconds := _number(after)) is not None:
        return seconds
    try:
        # By the server's own clock, which need not agree with ours.
        wait = parsedate_to_datetime(after) - parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, wait.total_seconds())
    except (ValueError, TypeError):
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
