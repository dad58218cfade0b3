"""A secret does not stay in a text, wherever it stands; the text around it does."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agents.secrets import redacted, redacted_tree

KEY = "sk-ant-api03-aB3_dE6-gH9"
PEM = """-----BEGIN RSA PRIVATE KEY-----
MIIEpAIBAAKCAQEA7
q1W2e3R4t5
-----END RSA PRIVATE KEY-----"""


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"my key is {KEY}, keep it", "my key is ***, keep it"),
        ("sk-proj-1234567890abcdef", "***"),
        ("(sk-1234567890abcdef)", "(***)"),
        (f"atask{KEY}", "atask***"),
        (r"first\nsk-1234567890abcdef\nlast", r"first\n***\nlast"),
        ("ghp_0123456789abcdefghij0123", "***"),
        ("AKIAIOSFODNN7EXAMPLE is Amazon's", "*** is Amazon's"),
        ("AIzaSyA0123456789abcdefghijklmnopqrstuv", "***"),
        ("Bearer abc.def-ghi_jkl", "Bearer ***"),
        (
            "authorization: bearer abcdefgh\nHost: x",
            "authorization: bearer ***\nHost: x",
        ),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("Authorization: mine\nHost: x", "Authorization: ***\nHost: x"),
        ('{"Authorization": "Token abc"}', '{"Authorization": "Token ***"}'),
        ("x-api-key: 123abc", "x-api-key: ***"),
        ("password=hunter2 user=me", "password=*** user=me"),
        ("https://x/?api_key=abc&page=2", "https://x/?api_key=***&page=2"),
        ("DB_PASSWORD = hunter2;", "DB_PASSWORD = ***;"),
        ("password='correct horse' x", "password='***' x"),
        ('password="a \\"quoted\\" one" x', 'password="***" x'),
        ('{"password": "correct horse", "n": 1}', '{"password": "***", "n": 1}'),
        (r"{\"api_key\": \"a b\", \"n\": 1}", r"{\"api_key\": \"***\", \"n\": 1}"),
        ('password="cut of', 'password="***"'),
        ("password='cut of\nnext", "password='***'\nnext"),
        (r"{\"password\": \"cut of", r"{\"password\": \"***\""),
        ('password="cut \\', 'password="***"'),
        ("client_secret: s3cret", "client_secret: ***"),
        (
            '{"token": "abc", "accessToken": "d"}',
            '{"token": "***", "accessToken": "***"}',
        ),
        ("postgres://me:hunter2@host/db", "postgres://me:***@host/db"),
        (f"key:\n{PEM}\nend", "key:\n***\nend"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE and cut off", "***"),
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str, left: str) -> None:
    assert redacted(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a task-management system on a disk-based store",
        "max_tokens=100, token count: 5, next_page_token=abc, invalid_token: 7",
        "Enter your password:\nthen go on",
        "the passwords are in the vault",
        "https://example.org:8080/path and me@example.org",
        "the bearer of this",
        "-----BEGIN PUBLIC KEY-----",
        "use sk-learn",
    ],
)
def test_what_does_not_look_like_one_stays(text: str) -> None:
    assert redacted(text) == text


def test_what_is_known_to_be_secret_is_taken_out_whatever_it_looks_like() -> None:
    assert redacted("the swordfish swims", ["swordfish"]) == "the *** swims"


def test_of_two_known_ones_the_longer_goes_whole() -> None:
    assert redacted("ab abcd", ["ab", "abcd"]) == "*** ***"


def test_an_empty_one_is_not_everywhere() -> None:
    assert redacted("text", [""]) == "text"


def test_a_tree_is_freed_of_secrets_in_all_its_texts() -> None:
    tree = {KEY: [KEY, {"a": (KEY, 1, None, 1.5, True)}], "say": "swordfish"}

    left = redacted_tree(tree, ["swordfish"])

    assert left == {"***": ["***", {"a": ["***", 1, None, 1.5, True]}], "say": "***"}


def test_what_has_a_telling_name_is_taken_out_whatever_it_is() -> None:
    tree = {"password": "x", "API-Key": 1234, "Authorization": "y", "user": "me"}

    left = redacted_tree(tree)

    assert left == dict.fromkeys(["password", "API-Key", "Authorization"], "***") | {
        "user": "me"
    }


def test_a_schema_that_speaks_of_passwords_stays() -> None:
    schema = {
        "properties": {"password": {"type": "string"}, "api_key": True, "secret": None},
        "required": ["password"],
    }

    assert redacted_tree(schema) == schema


pieces = st.sampled_from(
    [
        *("password", "api_key", "Authorization", "=", ": ", '"', "'", "\\", " ", "\n"),
        *(
            "Bearer ",
            "Basic ",
            KEY,
            "hunter2",
            "***",
            "x://a:b@c",
            "&",
            ";",
            PEM,
            "sk-",
        ),
        *("-----BEGIN PRIVATE KEY-----", "swordfish", "word", "1234567890"),
    ]
)


@settings(deadline=None)
@given(st.lists(pieces | st.text(max_size=5)).map("".join))
@example("password=Bearer abcdefgh")
def test_taking_out_twice_changes_nothing(text: str) -> None:
    """What was written once compares equal to what would be written now."""
    once = redacted(text, ["swordfish"])

    assert redacted(once, ["swordfish"]) == once


@settings(deadline=None)
@given(before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_known_secret_never_stays(before: str, after: str) -> None:
    assert "swordfish" not in redacted(before + "swordfish" + after, ["swordfish"])


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.text(max_size=9)))
def test_json_without_its_secrets_is_json(values: dict[str, str]) -> None:
    text = json.dumps(values | {"password": 'a "b" \\ c', "z": 1})

    left: dict[str, Any] = json.loads(redacted(text))

    assert left["password"] == "***"
    assert left["z"] == 1


@pytest.mark.parametrize(
    "piece",
    ["a.", "a-", "password", "password=", "://", "x://a:", "\\", 'secret="', "sk-"],
)
def test_a_long_text_is_no_trouble(piece: str) -> None:
    """Tools answer with whole files, and a pattern that goes back and forth never ends."""
    assert redacted(piece * 50_000) is not None
