"""Streams with secrets, cut at random places: none leaks, and nothing is held back for long."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.streams import texts
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.streamed_text import MAX_HELD_BACK, StreamRedactor
from tests.agents.test_redactor_tables import KEYS

KNOWN = "correct-horse-battery"
REDACTOR = Redactor([KNOWN])
STREAMS = 2_000
SEED = 20261117
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
PLACES = (
    "{}",
    "password={}",
    "Authorization: Bearer {}",
    "Authorization: Basic {}",
    "curl -u me:{} https://example.org",
    "postgres://me:{}@host/db",
    "<password>{}</password>",
    '{{"api_key": "{}"}}',
    "DB_PASSWORD: {}\nDB_USER: me",
)
AROUND = (
    "The quick brown fox jumps over 12 lazy dogs. ",
    "在2024年人工智能的发展速度超过了3倍。",
    "ในปี2024ประเทศไทยมีประชากร70ล้านคน",
    "[1, 22, 333, 4444]\n",
    "M0,0L12.5,7.25L900.1,3.2 ",
    "\n",
    "",
)
SECRET_CHARACTERS = 4
"""So many characters of a secret in a row are a leak; what a prefix says is none."""


def secret(draw: random.Random) -> tuple[str, str]:
    """Return a secret, and the text that it stands in."""
    kind = draw.randrange(4)
    if kind == 0:
        return KNOWN, KNOWN
    if kind == 1:
        key = draw.choice(sorted(KEYS.values()))
        return key, key
    # With a digit: a word of letters behind the name of a secret may be prose.
    value = "".join(draw.choices(LETTERS, k=draw.randrange(16, 60))) + "7xQ"
    if kind == 2:
        return value, draw.choice(PLACES[1:]).format(value)
    body = "\n".join("".join(draw.choices(LETTERS, k=64)) for _ in range(4))
    begin, end = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
    return body, f"{begin}\n{body}\n{end}"


def cut(text: str, draw: random.Random) -> list[str]:
    """Return the pieces of a text, of any length."""
    most = draw.choice((2, 8, 40, 400))
    pieces: list[str] = []
    at = 0
    while at < len(text):
        length = draw.randrange(1, most + 1)
        pieces.append(text[at : at + length])
        at += length
    return pieces


def shown_of(value: str, shown: str) -> int:
    """Return how many characters of the end of a secret are shown in a row."""
    tail = value[-24:]
    return max((size for size in range(1, len(tail) + 1) if tail[-size:] in shown), default=0)


def test_thousands_of_streams_leak_no_secret_at_any_cut() -> None:
    draw = random.Random(SEED)
    for number in range(STREAMS):
        value, text = secret(draw)
        before, after = draw.choice(AROUND), draw.choice(AROUND)
        whole = f"{before}\n{text}\n{after}"
        # A stream may also break off in the middle of a secret.
        end = len(whole) if draw.random() < 0.7 else draw.randrange(len(whole))
        stream = StreamRedactor(REDACTOR)
        shown = "".join(map(stream.add, cut(whole[:end], draw)))

        middle = value[len(value) // 2 :][:12]
        assert middle not in shown, (number, whole, shown)
        assert shown_of(value, shown) <= SECRET_CHARACTERS, (number, whole, shown)


@given(
    before=st.text(max_size=40),
    after=st.text(max_size=40),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=20),
)
def test_a_known_secret_is_never_shown(before: str, after: str, sizes: list[int]) -> None:
    text = f"{before}{KNOWN}{after}"
    stream = StreamRedactor(REDACTOR)
    shown, at, number = "", 0, 0
    while at < len(text):
        size = sizes[number % len(sizes)]
        shown += stream.add(text[at : at + size])
        at, number = at + size, number + 1

    assert KNOWN not in shown


PATIENCE = {
    "base64 in one line": 400,
    "base64 in lines of 64": MAX_HELD_BACK,
    "code": 400,
    "prose about tokens": 100,
}
"""How many characters may wait, where that is more than a word: they may be of a private key."""


@pytest.mark.parametrize("name", texts())
def test_held_back_text_is_bounded_in_characters_and_pieces(name: str) -> None:
    text, most = texts()[name], PATIENCE.get(name, 30)
    stream = StreamRedactor(REDACTOR)
    silent = longest = 0
    for at in range(0, len(text), 4):
        silent = 0 if stream.add(text[at : at + 4]) else silent + 4
        longest = max(longest, silent)

        assert stream.held_back <= most
    assert longest <= most
