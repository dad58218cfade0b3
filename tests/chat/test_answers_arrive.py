"""Every character of an answer arrives, on every platform."""

import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.products.chat.discord.markup import split as split_for_discord
from orchestrator.products.chat.slack.rich_text import rich_texts
from orchestrator.products.chat.telegram.markup import MOST_ENTITIES, split_markdown, utf16_length


def on_telegram(text: str) -> list[str]:
    parts = split_markdown(text)
    links = [it["url"] for part in parts for it in part.formatting if "url" in it]
    languages = [it["language"] for part in parts for it in part.formatting if "language" in it]
    return [*(it.text for it in parts), *links, *languages]


def on_slack(text: str) -> list[str]:
    messages = rich_texts(text)
    runs = [run for it in messages for piece in it.pieces for run in piece.runs]
    languages = [piece.language for it in messages for piece in it.pieces]
    return [*(it.plain for it in messages), *(it.url for it in runs), *languages]


PLATFORMS: Sequence[Callable[[str], list[str]]] = (on_telegram, on_slack, split_for_discord)
on_every_platform = pytest.mark.parametrize("shown_on", PLATFORMS)


def letters(text: str) -> str:
    return re.sub(r"\s", "", text)


@on_every_platform
@pytest.mark.parametrize(
    "text",
    [
        "Use List<String> and vector<int>; a<b>c, and the <head> of <my-element>.",
        "if a <b and c> d then",
        "Press <Enter>, then type <name>.",
        "Here it is:\n\n<svg viewBox='0 0 1 1'><path d='M0'/></svg>\n\nDone.",
        "<!-- a comment -->",
        "<details>\n<summary>More</summary>\ninside\n</details>",
        "(a || b || c) costs $5 or $6, ~1 or ~2",
        "[ERROR]: disk",
        "42.",
        "#",
        "<!DOCTYPE html>\n<html>\n" + "<p>one <b>line</b> of it</p>\n" * 300 + "</html>",
    ],
)
def test_raw_html_and_signs_of_programs_arrive_as_text(
    shown_on: Callable[[str], list[str]], text: str
) -> None:
    assert letters(text) in letters("".join(shown_on(text)))


WORDS = st.text(st.sampled_from("abcé\N{SLOTH}019"), min_size=1, max_size=12)
FORMS = (
    *("{} ", "**{}** ", "_{}_ ", "`{}` ", "~~{}~~ ", "<{}> ", "</{}>", "<{0} a={0}>", "{}\n"),
    *("# {}\n", "> {}\n", ">> {}\n", "- {}\n", "  - {}\n", "3. {}\n", "    {}\n", "\n\n{}\n\n"),
    *(
        "```\n{}\n```\n",
        "```{}\n",
        "~~~ {} {}\n",
        "| {} | {} |\n",
        "|---|---|\n",
        "| {0} | {0} | {0} |\n",
    ),
    *("[{}](https://{}.example) ", "[{}]({}) ", "![{}](https://m) ", "[{}]: {}\n", "[{}][{}] "),
    *("<div>\n{}\n", "<!-- {} -->", "[{}](tg://user?id=7) ", "<https://{}.example> ", "||{}|| "),
)


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Return a text of Markdown, HTML and words, and the words."""
    text = ""
    words: list[str] = []
    for form in draw(st.lists(st.sampled_from(FORMS), max_size=40)):
        count = draw(st.sampled_from((1, 1, 1, 200)))
        own = [f"w{len(words) + at}w{draw(WORDS)}" for at in range(2)]
        made = form.format(*own)
        words += [it for it in own if it in made]
        text += made * count
    return text, words


@on_every_platform
@given(answers())
def test_every_word_of_an_answer_arrives(
    shown_on: Callable[[str], list[str]], answer: tuple[str, list[str]]
) -> None:
    text, words = answer
    shown = letters("".join(shown_on(text)))
    # An address is shown in its encoded form, too.
    assert [it for it in words if it not in shown and it.isascii()] == []


@given(answers())
def test_every_part_keeps_the_limits_of_telegram(answer: tuple[str, list[str]]) -> None:
    for part in split_markdown(answer[0]):
        assert 0 < utf16_length(part.text) <= 4096
        assert len(part.formatting) <= MOST_ENTITIES
        assert all(it["offset"] + it["length"] <= utf16_length(part.text) for it in part.formatting)


def test_more_than_100_entities_are_several_messages() -> None:
    parts = split_markdown(" ".join(f"**b{number}** and" for number in range(243)))
    assert [len(it.formatting) for it in parts] == [100, 100, 43]
    assert "".join(letters(it.text) for it in parts).count("and") == 243


def test_a_link_of_telegram_to_a_person_is_text() -> None:
    (part,) = split_markdown("Ask [Ada](tg://user?id=7).")
    assert (part.text, part.formatting) == ("Ask Ada (tg://user?id=7).", [])
