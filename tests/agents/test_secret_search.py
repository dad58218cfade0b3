"""The search around marks finds every secret that a search of the whole text finds."""

import random
import re

from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.agents.redaction.key_shapes import KEY_PREFIXES
from orchestrator.agents.redaction.named_values import (
    NAMED,
    REDACTED,
    SECRET_NAME_WORDS,
    Replacement,
    replaced,
    replacement,
)
from orchestrator.agents.redaction.private_keys import ends_of_private_keys
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.shaped_secrets import RULES
from orchestrator.agents.redaction.streamed_text import MAX_HELD_BACK, StreamRedactor
from tests.agents.test_redactor_tables import GO, KEYS, PEM_LINE, PLACES, RANDOM, STAY
from tests.growth import grows_at_most

KNOWN = "correct-horse-battery"
REDACTOR = Redactor([KNOWN])
MARKS = [
    *(*KEY_PREFIXES, *SECRET_NAME_WORDS, "-----BEGIN ", "-----END ", "PRIVATE KEY-----"),
    *("123456789", ":AA", "Bearer ", "basic ", "curl ", " -u ", "://", "me:", "@", "</", ">"),
    *("--", "login me ", " = ", ": ", '"', "'", "\\", "\\n", "\n", " ", "=", ":"),
    *("hunter2", RANDOM, PEM_LINE, KNOWN, "\u0130", "\u017f", "\u212a", "字", "\ud800"),
]
PLANTED = [
    *(place.format(key) for key in KEYS.values() for place in PLACES.values()),
    *(text for text, _ in GO),
]
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(MARKS), st.sampled_from(PLANTED), st.sampled_from(STAY), st.text(max_size=9)
    ),
    max_size=12,
).map("".join)


def whole_search(text: str) -> str:
    """Return a text without the secrets that each pattern finds anywhere in it."""
    while (found := search_once(text)) != text:
        text = found
    return text


def search_once(text: str) -> str:
    for form in REDACTOR.forms:
        text = text.replace(form, REDACTED)
    for rule in RULES:
        found_by_rule: list[Replacement] = []
        for found in rule.pattern.finditer(text):
            groups = found.groupdict()
            if rule.is_secret(groups.get("value") or found[0]):
                kept = len(groups.get("kept") or "")
                found_by_rule.append((found.start() + kept, found.end(), REDACTED))
        text = replaced(text, found_by_rule)
    named: list[Replacement] = []
    for position in range(len(text)):
        done = named[-1][1] if named else 0
        value = NAMED.match(text, position) if position >= done else None
        if value is not None and (secret := replacement(value)) is not None:
            named.append((value.start("value"), secret[1], secret[0]))
    text = replaced(text, named)
    return replaced(text, ends_of_private_keys(text, text.lower(), {}))


@given(TEXTS)
@example('password="hunter2"</password>')
def test_the_search_around_marks_finds_what_the_whole_search_finds(text: str) -> None:
    assert REDACTOR.redact(text) == whole_search(text)


@given(TEXTS, st.sampled_from(PLANTED), TEXTS, st.integers(0), st.integers(1, 60))
def test_a_planted_secret_is_hidden_in_a_stream_as_in_the_whole_text(
    before: str, planted: str, after: str, seed: int, longest: int
) -> None:
    text = f"{before}\n{planted}\n{after}\n{'and so on. ' * 60}"
    hidden: list[str] = re.findall(r"[A-Za-z0-9]{12,}", planted)
    whole = whole_search(text)
    draw = random.Random(seed)
    stream = StreamRedactor(REDACTOR)
    shown, at = "", 0
    while at < len(text):
        size = draw.randint(1, longest)
        shown += stream.add(text[at : at + size])
        at += size

    for part in hidden:
        assert part not in shown or part in whole


def key_without_its_first_line(lines: int) -> str:
    return f"{PEM_LINE}\n" * lines + "q1W2e3R4==\n-----END PRIVATE KEY-----\n"


def streamed(text: str) -> str:
    stream = StreamRedactor(REDACTOR)
    shown = ""
    for at in range(0, len(text), 7):
        shown += stream.add(text[at : at + 7])
        assert stream.held_back <= MAX_HELD_BACK
    return shown


def test_a_stream_shows_lines_of_a_private_key_that_end_too_late_to_be_known() -> None:
    """The first line is not there: only the last line says that it is a private key."""
    held = MAX_HELD_BACK // (len(PEM_LINE) + 1)
    short, long = key_without_its_first_line(held - 1), key_without_its_first_line(20)

    assert PEM_LINE not in streamed(f"so:\n{short}and more. ")
    # Those that were held back when the last line came are hidden.
    assert streamed(f"so:\n{long}and more. ").count(PEM_LINE) <= 20 - held + 1
    assert PEM_LINE not in REDACTOR.redact(f"so:\n{long}and more. ")


def test_a_stream_shows_a_token_whose_first_part_is_too_long() -> None:
    """A point and the second part make it a token; the key of its first part has no name."""
    header = "eyJ" + RANDOM * (MAX_HELD_BACK // len(RANDOM) + 2)
    token = f"{header}.eyJ{RANDOM}.{RANDOM}"

    assert header[:20] in streamed(f"it is {token} and more. ")
    assert header[:20] not in streamed(f"it is eyJ{RANDOM * 4}.eyJ{RANDOM}.x and more. ")
    assert header[:20] not in REDACTOR.redact(f"it is {token} and more. ")


def test_the_time_of_a_piece_does_not_depend_on_the_names_of_secrets_before_it() -> None:
    """The time of ten times the text would grow a hundredfold."""
    names = "password: none, secret: none. "

    assert grows_at_most(30, streamed, small=names * 60, large=names * 600)
