"""The header `traceparent` is read as W3C Trace Context says; a malformed one is ignored."""

import pytest

from orchestrator.delegation.traceparent import (
    checked_traceparent,
    read_traceparent,
    write_traceparent,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"


def test_a_header_is_read_and_written_alike() -> None:
    ids = read_traceparent(GIVEN)
    assert ids == (int(TRACE, 16), int(SPAN, 16))
    assert write_traceparent(*ids) == checked_traceparent(GIVEN) == GIVEN


def test_a_later_version_may_have_more_fields() -> None:
    assert checked_traceparent(f"01-{TRACE}-{SPAN}-03-more") == GIVEN


@pytest.mark.parametrize(
    "given",
    [
        None,
        7,
        "",
        "garbage",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{GIVEN}\n",
        pytest.param(f"00-{TRACE}-{SPAN}-00", id="not recorded by its backend"),
    ],
)
def test_a_malformed_header_is_ignored(given: object) -> None:
    assert checked_traceparent(given) == ""
