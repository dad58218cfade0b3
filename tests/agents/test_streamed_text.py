"""No piece of a text tells a secret, however the text is cut, and nothing else is kept back."""

import time

import pytest

from agents.redaction.redactor import Redactor
from agents.redaction.streamed_text import StreamRedactor
from tests.agents.test_secrets_tables import GO, KEYS, PLACES

KNOWN = "correct-horse-battery"
REDACTOR = Redactor([KNOWN])


def told_of(text: str, size: int) -> str:
    """Return what is told of a text that comes in pieces of a size."""
    withholding = StreamRedactor(REDACTOR)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return "".join(map(withholding.add, pieces))


def too_much(told: str, whole: str) -> int:
    """Return how many characters were told that are not of the text without its secrets."""
    same = [one == other for one, other in zip(told, whole, strict=False)]
    return len(told) - [*same, False].index(False)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
@pytest.mark.parametrize(
    "text",
    [
        f"my key is {KNOWN}, keep it",
        "sk-ant-api03-aB3_dE6-gH9jK2mN5pQ8 is mine",
        "password=hunter2 user=me",
        'first:\n  password: "correct horse"\n  user: me\nlast',
        "DB_PASSWORD: swordfish\nDB_USER: me\nand so on",
        "Authorization: Bearer abc.def-ghi_jkl and more",
        "curl -u me:hunter2 https://example.org and more",
        "<password>swordfish</password> and more",
        "postgres://me:hunter2@host/db and more",
        "a\n-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END PRIVATE KEY-----\nb",
        "123456789:AAaB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0fD3 is a bot",
    ],
)
def test_what_is_told_is_how_the_text_begins_without_its_secrets(
    text: str, size: int
) -> None:
    whole = REDACTOR.redact(text)

    assert whole != text
    assert whole.startswith(told_of(text, size))


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_no_more_of_a_key_is_told_than_how_such_keys_begin(
    key: str, place: str, size: int
) -> None:
    text = f"{place.format(key)}\nthis is the next line\nand this is another\n"
    told = told_of(text, size)

    assert key not in told
    assert too_much(told, REDACTOR.redact(text)) <= 3


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("text", [text for text, _ in GO])
def test_nothing_that_goes_is_told(text: str, size: int) -> None:
    text = f"Here it is:\n{text}\nthis is the next line\nand this is another\n"
    told = told_of(text, size)

    assert too_much(told, REDACTOR.redact(text)) <= 3


def test_prose_is_told_as_it_comes() -> None:
    withholding = StreamRedactor(REDACTOR)
    pieces = ["Hel", "lo", ", the passwor", "d is", " in the vault", ", the toke", "n"]

    assert [withholding.add(piece) for piece in pieces] == pieces


def test_a_long_text_is_no_trouble() -> None:
    """Each piece takes the same time, whatever came before it."""
    lines = ("some words\n", "aB3", "token: x\n", "-----BEGIN ", "curl -u ", "<key>")
    for line in lines:
        text = line * (6_000 // len(line))
        began = time.perf_counter()
        told_of(text, 10)
        assert time.perf_counter() - began < 10, line
