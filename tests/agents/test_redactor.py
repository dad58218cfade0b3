"""A secret does not stay in a text, wherever it stands; the text around it does."""

import base64
import html
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.agents.redaction.named_values import REDACTED
from orchestrator.agents.redaction.redactor import Redactor, redacted, redacted_tree
from tests.growth import grows_at_most

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
        ("authorization: bearer abcdefgh\nHost: x", "authorization: bearer ***\nHost: x"),
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
        ('{"token": "abc12345def", "accessToken": "d"}', '{"token": "***", "accessToken": "***"}'),
        ("postgres://me:hunter2@host/db", "postgres://me:***@host/db"),
        (f"key:\n{PEM}\nend", "key:\n***\nend"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nq1W2", "***\nq1W2"),
    ],
)
def test_a_text_that_looks_like_a_secret_is_redacted(text: str, left: str) -> None:
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
def test_an_ordinary_text_is_not_redacted(text: str) -> None:
    assert redacted(text) == text


def test_a_known_secret_is_redacted_even_if_it_looks_ordinary() -> None:
    assert redacted("the swordfish swims", ["swordfish"]) == "the *** swims"


def test_the_longer_of_two_known_secrets_is_redacted_whole() -> None:
    assert redacted("ab abcd", ["ab", "abcd"]) == "*** ***"


def test_an_empty_secret_redacts_no_text() -> None:
    assert redacted("text", [""]) == "text"


def test_a_tree_is_freed_of_secrets_in_all_its_texts() -> None:
    tree = {KEY: [KEY, {"a": (KEY, 1, None, 1.5, True)}], "say": "swordfish"}

    left = redacted_tree(tree, ["swordfish"])

    assert left == {"***": ["***", {"a": ["***", 1, None, 1.5, True]}], "say": "***"}


def test_a_field_with_a_telling_name_is_redacted_with_any_value() -> None:
    tree = {"password": "x", "API-Key": 1234, "Authorization": "y", "user": "me"}

    left = redacted_tree(tree)

    assert left == dict.fromkeys(["password", "API-Key", "Authorization"], "***") | {"user": "me"}


def test_a_schema_that_speaks_of_passwords_stays() -> None:
    schema = {
        "properties": {"password": {"type": "string"}, "api_key": True, "secret": None},
        "required": ["password"],
    }

    assert redacted_tree(schema) == schema


@pytest.mark.parametrize(
    "written",
    [
        SECRET := 'p"ä\\ss/w+ord 1',
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps([SECRET], ensure_ascii=False)),
        quote(SECRET),
        quote(SECRET, safe=""),
        html.escape(SECRET),
        html.escape(SECRET, quote=False),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"{SECRET}\n".encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_known_secret_is_found_in_every_encoding(written: str) -> None:
    redactor = Redactor([SECRET])

    left = redactor.redact(f"see {written}.")

    assert "***" in left
    assert len(left) <= len("see '***'.") + 6
    assert redactor.may_hold_secret(msgspec.json.encode({"text": f"see {written}."}))


PIECES = [
    *("password", "api_key", "Authorization", "=", ": ", '"', "'", "\\", " ", "\n"),
    *("Bearer ", "Basic ", "dXNlcjpwYXNz", KEY, "hunter2", "***", "x://a:b@c", "&", ";"),
    *(PEM, "sk-", "-----BEGIN PRIVATE KEY-----", "swordfish", "word", "1234567890"),
    *("token", "Token", "SECRET", "credentials", "passphrase", "Passwd", "Pwd=", "key"),
    *("curl ", " -u ", "--user ", "a:b", "--password ", "login me ", "</", ">", "<"),
    *("ghp_", "hf_", "npm_", "gsk_", "sk_live_", "github_pat_", "glpat-", "xoxb-"),
    *("xapp-1-", "xai-", "pypi-Ag", "AKIA", "ASIA", "AIza", "SG.", ":AA", "eyJ", "."),
    *("aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0fD3h", "ABCDEFGHIJKLMNOP", "12345678", "tokens"),
    *("\x1b[3m", "\t", "%3D", "/", "\\/", "\u017f", "\u212a", "ä", "\x7f", "str", "{", "}", ","),
]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
trees = st.recursive(
    texts
    | st.integers()
    | st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@given(texts)
@example("password=Bearer abcdefgh")
def test_redaction_is_idempotent(text: str) -> None:
    """So a stored text equals the text that would be stored now."""
    once = redacted(text, ["swordfish"])

    assert redacted(once, ["swordfish"]) == once


@given(trees)
def test_redaction_of_a_tree_is_idempotent(tree: object) -> None:
    once = redacted_tree(tree, ["swordfish"])

    assert redacted_tree(once, ["swordfish"]) == once


class Thorough(Redactor):
    """Suspects every text."""

    def may_hold_secret(self, body: bytes) -> bool:
        del body
        return True


@given(trees, st.sampled_from(["swordfish", 'sw"ord\\fish', "schwärtfisch"]))
def test_a_body_that_is_not_suspected_holds_no_secret(tree: object, known: str) -> None:
    redactor, thorough = Redactor([known]), Thorough([known])
    for body in (msgspec.json.encode(tree), json.dumps(tree).encode()):
        decoded = msgspec.json.decode(body)

        found = thorough.redact_tree(decoded)
        assert redactor.may_hold_secret(body) or found == decoded
        assert redactor.redact_tree(decoded) == found


@pytest.mark.parametrize(
    "body",
    [
        b'{"task":"t_0123456789abcdef","afresh":false}',
        b'{"copied":false,"message":{"calls":[{"arguments":{"path":"src/main.py"},"id":'
        b'"call_0123456789abcdefABCDEF12","name":"read_file"}],"id":"m_65b60a1991",'
        b'"model":"openai:gpt-5","text":"The build went through; all pass.","usage":'
        b'{"cached_tokens":0,"calls":1,"input_tokens":100,"micro_usd":0,"output_tokens":20,'
        b'"reasoning_tokens":0,"unpriced":0}},"task":"t_0123456789abcdef"}',
        b'{"text":"\\u001b[32mok\\u001b[0m a keyboard, a monkey and max_tokens=100"}',
        b'{"context":{"platform":"http","session_key":"","message_id":""},"text":"go"}',
    ],
)
def test_an_ordinary_fact_is_not_suspected(body: bytes) -> None:
    """All of them speak of tokens."""
    assert not Redactor(["swordfish"]).may_hold_secret(body)


@given(before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_known_secret_never_stays(before: str, after: str) -> None:
    assert "swordfish" not in redacted(before + "swordfish" + after, ["swordfish"])


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=9)))
def test_json_without_its_secrets_is_json(values: dict[str, str]) -> None:
    text = json.dumps(values | {"password": 'a "b" \\ c', "z": 1})

    left: dict[str, Any] = json.loads(redacted(text))

    assert left["password"] == "***"
    assert left["z"] == 1


HOSTILE = [
    *("a", "A1", "a.", "a-", "-", "_", '"', "'", "\\", '\\"', " ", "\n", "=", "&", "@"),
    *("password", "password=", "password:", "password ", 'secret="', "secret='", "token:"),
    *('token="a ', "token='a token=\\\"", "password&", "--token a", "key: x=", "pwd="),
    *("://", "x://a:", "://a:b", "://a:@", ":/", "sk-", "sk-ant-", "sk-a", "eyJ", "eyJa."),
    *("SG.", "1:AA", "123456:", "ghp_", "bearer ", "basic ", "curl ", "curl -u ", "a:b "),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "PRIVATE KEY-----", "password>"),
    *("authorization: basic ", "api_key: a|", "api_key: a[", "login a ", "MIIEpAIBAAKCAQEA7 "),
]


SIZES = 2_000, 20_000
BEFORES = ["", "password=", 'token="', r"secret=\"", "token: ", "key-----"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_text_is_redacted_in_time(piece: str) -> None:
    """Tools answer with whole files, and a pattern that goes back and forth never ends."""
    for before in BEFORES:
        small, large = (before + piece * (size // len(piece)) for size in SIZES)

        assert grows_at_most(30, redacted, small=small, large=large), before


def b2a_in_lines(raw: bytes) -> bytes:
    """Return base64 as `openssl` writes it."""
    whole = base64.b64encode(raw)
    return b"".join(whole[at : at + 64] + b"\n" for at in range(0, len(whole), 64))


SWORDFISH = "swordfish-9f8e7d?>"


@pytest.mark.parametrize(
    "shown",
    [
        SWORDFISH.encode().hex(),
        SWORDFISH.encode().hex().upper(),
        SWORDFISH[::-1],
        *(
            encoded(b"x" * before + SWORDFISH.encode() + b"y" * after).decode()
            for encoded in (base64.b64encode, base64.urlsafe_b64encode)
            for before in (0, 1, 2, 3)
            for after in (0, 1, 2)
        ),
    ],
)
def test_a_known_value_is_found_in_forms_that_tools_print(shown: str) -> None:
    redactor = Redactor([SWORDFISH])

    assert redactor.may_hold_secret(f'{{"text": "{shown}"}}'.encode())
    left = redactor.redact(f"before {shown} after")
    assert REDACTED in left
    # At most the letters at the ends are left, which also depend on the bytes around.
    assert len(left) <= len(f"before {REDACTED} after") + 9


@pytest.mark.parametrize("lines", [base64.encodebytes, b2a_in_lines])
def test_base64_of_several_lines_is_found(lines: Callable[[bytes], bytes]) -> None:
    long = SWORDFISH * 5
    written = lines(long.encode()).decode()
    redactor = Redactor([long])

    for each in (written, written.replace("\n", "\r\n"), json.dumps(written)):
        assert each.count("\n") + each.count("\\n") > 1
        assert len(redactor.redact(f"see {each}.")) < len("see ***\r\n.") + 8
