"""No released piece of a text has a secret, however it is cut, and only secrets are held back."""

import pytest

from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.streamed_text import StreamRedactor, without_unfinished_secret
from tests.agents.test_redactor_tables import GO, KEYS, PLACES
from tests.growth import grows_at_most

KNOWN = "correct-horse-battery"
REDACTOR = Redactor([KNOWN])


def released(text: str, size: int) -> str:
    """Return the text that is released when it comes in pieces of a size."""
    redactor = StreamRedactor(REDACTOR)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return "".join(map(redactor.add, pieces))


def too_much(text: str, whole: str) -> int:
    """Return how many characters were released that are not in the redacted text."""
    same = [one == other for one, other in zip(text, whole, strict=False)]
    return len(text) - [*same, False].index(False)


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
def test_the_released_text_is_a_prefix_of_the_redacted_one(text: str, size: int) -> None:
    whole = REDACTOR.redact(text)

    assert whole != text
    assert whole.startswith(released(text, size))


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_at_most_the_prefix_of_a_key_is_released(key: str, place: str, size: int) -> None:
    text = f"{place.format(key)}\nthis is the next line\nand this is another\n"
    shown = released(text, size)

    assert key not in shown
    assert too_much(shown, REDACTOR.redact(text)) <= 3


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("text", [text for text, _ in GO])
def test_no_secret_is_released(text: str, size: int) -> None:
    text = f"Here it is:\n{text}\nthis is the next line\nand this is another\n"
    shown = released(text, size)

    assert too_much(shown, REDACTOR.redact(text)) <= 3


def test_prose_is_released_as_it_comes() -> None:
    redactor = StreamRedactor(REDACTOR)
    pieces = ["Hel", "lo", ", the passwor", "d is", " in the vault", ", the toke", "n"]

    assert [redactor.add(piece) for piece in pieces] == pieces


@pytest.mark.parametrize(
    "line", ["some words\n", "aB3", "token: x\n", "-----BEGIN ", "curl -u ", "<key>"]
)
def test_a_long_text_takes_linear_time(line: str) -> None:
    held_back, large = (line * (size // len(line)) for size in (4_000, 24_000))

    assert grows_at_most(18, lambda text: released(text, 40), small=held_back, large=large)


@pytest.mark.parametrize(
    "text",
    [
        "Roses are red, violets ",
        "Roses are red, violets",
        "",
        "The key is sk-proj-aB3dE6gH9jK2",
        "The key is sk-proj-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9jK2 and more",
        "password = hun",
        "Authorization: Bearer abc",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq1\nMIIEpAIBAAK",
        "so it goes, " * 1_000 + "until sk-",
    ],
)
def test_a_text_that_was_broken_off_ends_where_its_stream_had_come(text: str) -> None:
    kept = REDACTOR.redact(without_unfinished_secret(text, REDACTOR))

    # Half a word was released before it turned out to be the name of a secret.
    assert released(text, 7).removeprefix(kept) in {"", "Authori"}
