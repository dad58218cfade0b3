"""The signature of Slack's requests."""

import pytest

from orchestrator.products.chat.slack.signature import is_signed, sign

# The example of Slack's documentation.
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&"
    b"channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&"
    b"command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
    b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&"
    b"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
TIME = "1531420618"
SIGNATURE = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"


def test_the_example_of_the_documentation_is_signed() -> None:
    assert sign(SECRET, TIME, BODY) == SIGNATURE
    headers = {"x-slack-request-timestamp": TIME, "x-slack-signature": SIGNATURE}
    assert is_signed(SECRET, headers, BODY, now=int(TIME) + 300)


@pytest.mark.parametrize(
    "changed",
    [
        {"x-slack-signature": SIGNATURE[:-1] + "4"},
        {"x-slack-signature": "é"},
        {"x-slack-signature": ""},
        {"x-slack-request-timestamp": str(int(TIME) + 1)},
        {"x-slack-request-timestamp": "soon"},
        {"x-slack-request-timestamp": "٣"},
        {"x-slack-request-timestamp": "9" * 5_000},
        {"x-slack-request-timestamp": ""},
    ],
)
def test_a_changed_header_is_not(changed: dict[str, str]) -> None:
    headers = {"x-slack-request-timestamp": TIME, "x-slack-signature": SIGNATURE}
    assert not is_signed(SECRET, headers | changed, BODY, now=int(TIME))


@pytest.mark.parametrize("seconds", [301, -301])
def test_an_old_one_and_one_of_the_future_are_not(seconds: int) -> None:
    headers = {"x-slack-request-timestamp": TIME, "x-slack-signature": SIGNATURE}
    assert not is_signed(SECRET, headers, BODY, now=int(TIME) + seconds)


def test_a_changed_body_is_not_signed() -> None:
    headers = {"x-slack-request-timestamp": TIME, "x-slack-signature": SIGNATURE}
    assert not is_signed(SECRET, headers, BODY + b"&", now=int(TIME))
