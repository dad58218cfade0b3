"""Markdown in parts that Discord takes: nothing is lost, and no character is cut."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.products.chat.discord.markup import LONGEST, PART, length, plain, split

FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}\u200d\N{BOY}"
PIECES = st.sampled_from(
    [
        "word ",
        "**bold** ",
        "**bold over ",
        "`code` ",
        "snake_case * 2 ",
        "\\*",
        "```python\n",
        "```\n",
        "```",
        "x = 1\n",
        "\n\n",
        "- item\n",
        "~~",
        "||",
        "é" * 700,
        "\N{SLOTH}" * 300,
        FAMILY * 20,
        "w" * 2500,
        "many words " * 300,
    ]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_every_part_is_taken_and_no_letter_is_lost(text: str) -> None:
    parts = split(text)
    assert all(0 < length(it) <= PART for it in parts)
    assert all(it.strip() for it in parts)
    assert _letters("".join(parts)) == _letters(text)
    assert split(text) == parts


@given(st.text(st.sampled_from("a 1.*_`~|\n\\[<@#>-é\u200d👍🏽🇩\ud800"), max_size=4000))
def test_any_text_is_split(text: str) -> None:
    assert all(length(it) <= PART for it in split(text))
    assert length(plain(text)) <= LONGEST


def test_a_short_text_is_unchanged() -> None:
    text = "# Title\n\nSome **bold** text with `code`.\n\n```python\nx = 1\n```\nand more"
    assert split(text) == [text]


def test_an_empty_text_has_no_part() -> None:
    assert split("") == split(" \n\t\n") == []


def test_a_block_of_code_that_fits_is_not_cut() -> None:
    code = "```python\n" + "x = 1\n" * 250 + "```"
    before = "words " * 100
    assert split(f"{before}\n{code}\nafter") == [before, f"{code}\nafter"]


def test_a_long_block_of_code_is_several_of_its_language() -> None:
    lines = [f"line_{number} = {number}" for number in range(600)]
    parts = split("\n".join(("see:", "```python", *lines, "```", "done")))
    assert parts[0] == "see:"
    for part in parts[1:]:
        assert part.startswith("```python\n")
        assert part.count("```") == 2
    found = [it for part in parts for it in part.splitlines() if it.startswith("line_")]
    assert found == lines
    assert parts[-1].endswith("```\ndone")


def test_a_block_of_code_without_an_end_is_closed() -> None:
    parts = split("```\n" + "x = 1\n" * 1000)
    assert len(parts) > 1
    assert all(it.startswith("```\n") and it.endswith("\n```") for it in parts)


def test_three_backticks_within_a_line_open_no_block() -> None:
    text = "use ```x``` here\n" * 200
    assert "".join(split(text)).replace("\n", "") == text.replace("\n", "")


def test_bold_text_that_is_cut_is_bold_in_both_parts() -> None:
    parts = split("**" + "word " * 800 + "end**")
    assert len(parts) > 1
    assert all(it.startswith("**") and it.endswith("**") for it in parts)


def test_a_mark_within_a_word_or_alone_is_plain_text() -> None:
    parts = split("snake_case 2 * 3 " * 300)
    assert not any(it.endswith(("_", "*")) for it in parts)


@pytest.mark.parametrize(
    "character",
    ["\N{SLOTH}", FAMILY, "e\N{COMBINING ACUTE ACCENT}", "\U0001f1e9\U0001f1ea", "👍🏽"],
)
def test_no_character_is_cut(character: str) -> None:
    parts = split(character * 3000)
    assert len(parts) > 1
    for part in parts:
        assert re.fullmatch(f"(?:{re.escape(character)})+", part)


def test_a_plain_text_has_no_markup() -> None:
    text = "*a* _b_ `c` ~~d~~ ||e|| [f](g) <@1> @everyone\n# h\n> i\n- j\n1. k"
    shown = plain(text)
    assert shown.replace("\\", "") == text
    for mark in "*_`~|[<@":
        assert not re.search(rf"(?<!\\)\{mark}", shown), mark
    assert all(it in shown for it in ("\n\\#", "\n\\>", "\n\\-", "\n1\\."))


def _letters(text: str) -> str:
    """Return what is no space and no mark, and no name of a language."""
    return re.sub(r"```(python)?|[\s*_~|`]", "", text)
