"""Thousands of streams with secrets, cut at random places: none leaks, and none stays silent.

The cuts and the texts are random, and the same in every run: a failure names its seed.
"""

import base64
import json
import random
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import pytest

from orchestrator.agents.redaction.private_keys import MAX_PEM_LINE
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.streamed_text import (
    CONTEXT,
    MAX_HELD_BACK,
    StreamRedactor,
    without_unfinished_secret,
)
from tests.agents.test_redactor_tables import GO, KEYS, PLACES, RANDOM, pem

KNOWN = "correct-horse-battery"
REDACTOR = Redactor([KNOWN])
STREAMS = 220
"""In each of the batches."""
SHOWN = 4
"""So many characters of a key may be shown before it is known for one: its prefix."""
BASE64: Final = f"{RANDOM}+/"

FILLERS = {
    "english": "Roses are red, 12 violets are blue, and nothing here is hidden from you. ",
    "chinese": "在2024年，人工智能的发展速度超过了3倍，很多公司开始使用GPT4等模型。",  # noqa: RUF001
    "japanese": "2024年の東京では、約1,400万人が暮らし、AIのサービスが3倍に増えました。",
    "thai": "ในปี2024ประเทศไทยมีประชากร70ล้านคนและเศรษฐกิจเติบโต3เปอร์เซ็นต์",
    "arabic": "في عام 2024 كان عدد السكان 70 مليون نسمة، ونما الاقتصاد بنسبة 3. ",
    "numbers": "[12,345,6789,10,111213,14.5,-16,1718,192021,22,232425,26]",
    "svg": '<path d="M10.5,20L30,40C50,60,70,80,90.5,100Z" fill="#fa0"/>',
    "markdown": "## 1. Steps\n\n- `make` it\n- run it\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    "code": 'def f(x: int, token: str = "") -> int:\n    return x + 1  # no key\n',
    "about tokens": "You need a token: the server gives it to you. Passwords: none. ",
}
"""Text without secrets. All of it is to be shown, and soon."""


def long_secrets() -> dict[str, str]:
    body = "\n".join(RANDOM[at % 7 :] + RANDOM for at in range(60))
    return {
        "a long private key": f"-----BEGIN RSA PRIVATE KEY-----\n{body}\nq1W2=="
        "\n-----END RSA PRIVATE KEY-----",
        "a long JWT": f"eyJ{RANDOM}.eyJ{RANDOM * 100}.{RANDOM * 3}",
        "a long quoted value": f'password = "{RANDOM * 100} {RANDOM}"',
        "a long value": f"DB_PASSWORD={RANDOM * 100}",
        "a long bearer": f"Authorization: Bearer {RANDOM * 100}",
        "a long login": f"postgres://me:{RANDOM * 30}@host/db",
        "a very long login": f"postgres://me:{RANDOM * 200}@host/db",
        "a long basic": f"send Basic {in_base64(RANDOM * 30 + ':x')}",
        "a long bearer of words": f"send Bearer {'some-' * 60}{RANDOM}",
    }


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def known_forms() -> list[str]:
    raw = KNOWN.encode()
    return [
        *(KNOWN, raw.hex(), raw.hex().upper(), KNOWN[::-1]),
        *(base64.b64encode(raw).decode(), quote(KNOWN), json.dumps(KNOWN)),
        base64.b64encode(b"xy" + raw + b"z").decode(),
    ]


def cut(text: str, draw: random.Random) -> list[str]:
    """Return a text in pieces as models write it: letters, tokens, or a lot at once."""
    longest = draw.choice([1, 7, 7, 40, 40, 400])
    pieces: list[str] = []
    at = 0
    while at < len(text):
        size = draw.randint(1, longest)
        pieces.append(text[at : at + size])
        at += size
    return pieces


def shown_of(pieces: Sequence[str]) -> str:
    stream = StreamRedactor(REDACTOR)
    shown: list[str] = []
    for piece in pieces:
        shown.append(stream.add(piece))
        assert stream.held_back <= MAX_HELD_BACK
    return "".join(shown)


def require_hidden(shown: str, secret: str, whole: str) -> None:
    """Require that no part of a secret is shown which the redacted text does not have."""
    size = SHOWN + 4
    for at in range(len(secret) - size):
        part = secret[at : at + size]
        assert part not in shown or part in whole, part


def secrets() -> list[tuple[str, str]]:
    """Return texts with a secret in each, and the secret."""
    found = [(place.format(key), key) for key in KEYS.values() for place in PLACES.values()]
    found += [(text, text) for text, _ in GO]
    found += [(f"it is {form}, keep it", form) for form in known_forms()]
    found += [(text, text) for text in long_secrets().values()]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_no_secret_leaks_at_any_cut_of_its_stream(seed: int) -> None:
    draw = random.Random(seed)
    every = secrets()
    for number in range(STREAMS):
        text, secret = draw.choice(every)
        if len(text) > MAX_HELD_BACK and number % 20:
            continue
        before, after = draw.choices([*FILLERS.values()], k=2)
        between = draw.choice(["", " ", "\n"])
        stream = f"{before * draw.randint(0, 2)}{between}{text}\n{after * 2}"
        whole = REDACTOR.redact(stream)

        require_hidden(shown_of(cut(stream, draw)), secret, whole)


def secret_of_length(kind: str, length: int) -> str:
    """Return a text with a secret of a kind, of which about so many characters come first."""
    value = (RANDOM * (length // len(RANDOM) + 1))[:length]
    lines = "\n".join(value[at : at + 64] for at in range(0, length, 64))
    return {
        "basic": f"send Basic {in_base64(value)}OnRvLWVuZA==",
        "basic of words": f"send Basic {'YWFh' * (length // 4)}OmJi{RANDOM}",
        "bearer": f"send Bearer {value}",
        "bearer of words": f"send Bearer {'ab-' * (length // 3)}{RANDOM}",
        "header": f"Authorization: Basic {in_base64(value)}OnRvLWVuZA==",
        "named": f"password={value}",
        "quoted": f'password = "{value}"',
        "JWT": f"eyJ{RANDOM}.eyJ{value}.{RANDOM}",
        "key": f"sk-proj-{value}",
        "login": f"https://me:{value}@host/path",
        "user and login": f"https://{value[:100]}:{value}@host/path",
        "curl": f"curl -u me:{value} https://host",
        "private key": f"{pem('RSA PRIVATE KEY').partition(chr(10))[0]}\n{lines}",
    }[kind]


@pytest.mark.parametrize("length", [30, 190, 201, 990, 4_100, 9_000])
@pytest.mark.parametrize(
    "kind",
    [
        *("basic", "basic of words", "bearer", "bearer of words", "header"),
        *("named", "quoted", "JWT", "key", "login", "user and login", "curl"),
        "private key",
    ],
)
def test_a_secret_of_any_length_is_hidden_as_in_the_whole_text(kind: str, length: int) -> None:
    """In a stream with any cuts, and in an answer that was broken off anywhere."""
    draw = random.Random(length)
    secret = secret_of_length(kind, length)
    text = f"Here it is: {secret}\n{FILLERS['english']}"
    whole = REDACTOR.redact(text)
    assert whole != text
    for size in (1 if length < 1_000 else 11, draw.randint(20, 60), 1_500):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]

        require_hidden(shown_of(pieces), secret, whole)
    for end in (*draw.sample(range(len(text)), 3), len(text) - len(FILLERS["english"])):
        kept = REDACTOR.redact(without_unfinished_secret(text[:end], REDACTOR))

        require_hidden(kept, secret, whole)


@pytest.mark.parametrize("text", FILLERS.values(), ids=FILLERS)
def test_a_text_without_secrets_is_shown_as_it_comes(text: str) -> None:
    """The reader is never more than a word behind, in any script."""
    text *= 20
    draw = random.Random(1)
    stream = StreamRedactor(REDACTOR)
    for piece in cut(text, draw):
        stream.add(piece)

        assert stream.held_back <= 20


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("data:image/png;base64," + BASE64 * 200, MAX_PEM_LINE),
        ("0123456789abcdef" * 600, MAX_PEM_LINE),
        (((BASE64 * 2)[:76] + "\n") * 100, MAX_PEM_LINE),
        (f"{RANDOM}\n" * 100, MAX_HELD_BACK),
        ("eyJ" + RANDOM * 100, MAX_HELD_BACK),
        ("password: " + "字" * 5_000, MAX_HELD_BACK),
        ("a,b;c&d=e" * 1_000, 20),
    ],
    ids=[
        "base64",
        "hex",
        "base64 in a mail",
        "base64 in lines",
        "JSON in base64",
        "no blanks",
        "signs",
    ],
)
def test_a_possible_secret_is_held_back_up_to_a_bound(text: str, most: int) -> None:
    stream = StreamRedactor(REDACTOR)
    for piece in cut(f"{text}\n", random.Random(1)):
        stream.add(piece)

        assert stream.held_back <= most
    after = "and this is what comes after it, word by word. "

    assert "word by word" in stream.add(after * 3)


@pytest.mark.parametrize("text", long_secrets().values(), ids=long_secrets())
def test_the_text_after_a_long_secret_is_shown(text: str) -> None:
    after = f"\n\n{FILLERS['english'] * (CONTEXT // 30)}"
    shown = shown_of(cut(f"Here: {text}{after}", random.Random(1)))

    assert shown.startswith("Here: ")
    assert "***" in shown
    assert shown.endswith(after[-500:])
    assert pem("PRIVATE KEY") not in shown
