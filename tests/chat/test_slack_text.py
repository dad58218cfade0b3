"""Slack's texts: Markdown as rich text, split, and what people write as they see it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.products.chat.slack.answers import Identity
from orchestrator.products.chat.slack.events import escaped, readable
from orchestrator.products.chat.slack.rich_text import LONGEST, rich_texts
from tests.chat.fakes.slack_blocks import LONGEST_BLOCKS, check_blocks

OWN = Identity(user_id="U0BOT", user="helper")


def elements(markdown: str) -> list[dict[str, Any]]:
    """Return the elements of the one message of a text."""
    (message,) = rich_texts(markdown)
    check_blocks([message.block()])
    found: list[dict[str, Any]] = message.block()["elements"]
    return found


def texts(element: dict[str, Any]) -> list[str]:
    return [it["text"] for it in element["elements"]]


def test_styles_and_links_are_values() -> None:
    (section,) = elements("a **b _c_** ~~d~~ `e` [f](https://g.example/h)")
    assert section["elements"] == [
        {"type": "text", "text": "a "},
        {"type": "text", "text": "b ", "style": {"bold": True}},
        {"type": "text", "text": "c", "style": {"bold": True, "italic": True}},
        {"type": "text", "text": " "},
        {"type": "text", "text": "d", "style": {"strike": True}},
        {"type": "text", "text": " "},
        {"type": "text", "text": "e", "style": {"code": True}},
        {"type": "text", "text": " "},
        {"type": "link", "url": "https://g.example/h", "text": "f"},
    ]


def test_slack_markup_in_an_answer_is_sent_as_text() -> None:
    """A model can mention no person, no channel, and not all of them."""
    wanted = "<!channel> <@U0ADA> <#C0GENERAL> *a* &lt;"
    (section,) = elements("<!channel> <@U0ADA> <#C0GENERAL> \\*a\\* &amp;lt;")
    assert [it["type"] for it in section["elements"]] == ["text"] * len(section["elements"])
    assert "".join(texts(section)) == wanted
    (message,) = rich_texts("<!channel>")
    assert escaped(message.plain) == "&lt;!channel&gt;"


def test_only_addresses_of_web_and_mail_are_links() -> None:
    (section,) = elements(
        "see https://a.example/b_(c). (or https://d.example.) [x](file:///etc/passwd)"
        " [m](mailto:a@b.example) ![p](https://q)"
    )
    links = {it["url"]: it["text"] for it in section["elements"] if "url" in it}
    assert links == {
        "https://a.example/b_(c)": "https://a.example/b_(c)",
        "https://d.example": "https://d.example",
        "mailto:a@b.example": "m",
        "https://q": "p",
    }


def test_lists_keep_their_depth_and_their_numbers() -> None:
    first, inner, code, second = elements("3. a\n   - b\n\n   ```\n   code\n   ```\n4. c\n")
    assert (first["style"], first["indent"], first["offset"]) == ("ordered", 0, 2)
    assert (inner["style"], inner["indent"]) == ("bullet", 1)
    assert texts(code) == ["code"]
    assert (second["style"], second["offset"]) == ("ordered", 3)


def test_markdown_without_a_slack_form_becomes_text() -> None:
    heading, table, quote = elements(
        "# Title\n\n| a | long |\n|---|---|\n| bb | c |\n\n> one\n> - two\n"
    )
    assert heading["elements"] == [{"type": "text", "text": "Title", "style": {"bold": True}}]
    assert texts(table) == ["a   long\n--  ----\nbb  c"]
    assert "".join(texts(quote)) == "one\n• two"


def test_a_long_text_is_cut_between_words_and_code_stays_code() -> None:
    words = " ".join(f"word{number}" for number in range(2_000))
    code = "\n".join(f"line({number})" for number in range(2_000))
    messages = rich_texts(f"{words}\n\n```python\n{code}\n```\n")

    pieces = [piece for message in messages for piece in message.pieces]
    assert " ".join(it.text.strip() for it in pieces if it.kind == "section") == words
    parts = [it.text for it in pieces if it.kind == "preformatted"]
    assert "\n".join(it.strip("\n") for it in parts) == code
    assert all(len(message.plain) <= LONGEST for message in messages)


def test_4096_emoji_are_all_there() -> None:
    family = "👨‍👩‍👧"
    messages = rich_texts("😀" * 4_096 + "\n\n" + family * 1_000)
    whole = "".join(piece.text for message in messages for piece in message.pieces)
    assert whole == "😀" * 4_096 + family * 1_000
    for message in messages:
        for piece in message.pieces:
            assert not piece.text.startswith("\u200d")
            assert not piece.text.endswith("\u200d")


def test_an_empty_text_makes_no_message() -> None:
    assert rich_texts("") == rich_texts(" \n\n ") == rich_texts("<!-- -->"[:0]) == []


@given(
    st.lists(
        st.sampled_from(
            (
                *("**a** ", "- x\n", "1. y\n", "> q\n", "```\n", "`c` ", "\n\n"),
                *("| a |\n", "|---|\n", "[l](https://m) ", "<b>", "    i\n"),
                *("é" * 900, "w " * 900),
            )
        ),
        max_size=60,
    )
)
def test_every_text_of_a_model_makes_valid_blocks(pieces: list[str]) -> None:
    for message in rich_texts("".join(pieces)):
        check_blocks([message.block()])
        assert len(message.plain) <= LONGEST
        assert len(json.dumps(message.block(), ensure_ascii=False)) < LONGEST_BLOCKS


def test_people_are_read_as_they_see_themselves() -> None:
    told = (
        "<@U0BOT> ask <@U0ADA> and <@U0BOB|bob> in <#C0GENERAL|general> <!here> about"
        " <https://a.example|this> or <https://b.example> or <mailto:c@d.example|c@d.example>,"
        " 1 &lt; 2 &amp;amp; <!subteam^S1|@team> <!date^1^{date}|today> <@U0BOT>"
    )
    assert readable(told, OWN) == (
        "ask @U0ADA and @bob in #general @here about this (https://a.example) or"
        " https://b.example or c@d.example, 1 < 2 &amp; @team today @helper"
    )
