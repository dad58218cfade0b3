"""The text of a call that people see hides nothing, and differs for different calls."""

import string
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.kernel.engine.shown_text import visible, visible_in_short

ODD = " \t\n⟨⟩U+0\u200b\u00a0\u3164\u202e"


@pytest.mark.parametrize("text", ["make", "a\n\tb\n\nc", f"x{' ' * 20}y", "grün ✓ 日本"])
def test_visible_characters_are_shown_unchanged(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        (f"a{' ' * 21}b", "a⟨21 blanks⟩b"),
        (f"a{chr(9) * 30}b", "a⟨30 blanks⟩b"),
        ("a\n \n\n\n\nb", "a\n⟨4 empty lines⟩\nb"),
        ("a\u200bb", "a⟨U+200B⟩b"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("a\u3164b", "a⟨U+3164⟩b"),
        ("a\u00a0b", "a⟨U+00A0⟩b"),
        ("a\U000e0041b", "a⟨U+E0041⟩b"),
        ("a\rb", "a⟨U+000D⟩b"),
    ],
)
def test_an_invisible_character_is_marked(text: str, mark: str) -> None:
    assert visible(text).startswith(f"{mark} ⟨sha256 ")


@given(*[st.text(st.sampled_from(ODD), max_size=60)] * 2)
@example("\u200b", visible("\u200b"))
def test_different_texts_are_shown_differently(one: str, other: str) -> None:
    for show in (visible, partial(visible_in_short, most=8)):
        assert (show(one) == show(other)) is (one == other)


def test_a_long_text_is_shown_quickly() -> None:
    text = (string.printable + ODD) * 50_000

    assert len(visible_in_short(text)) < 30_000
