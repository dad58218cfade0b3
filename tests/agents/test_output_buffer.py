"""The output of a command is kept in bounded memory, as printable text."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agents.tools.terminal.output_buffer import LONGEST_WORD, OutputBuffer

TEXTS = [b"a", "ä€😀".encode(), b"\n", b"\r", b"\r\n", b"[", b"]", b"\\", b"(B", b" 9;"]
OTHERS = [b"\x1b", b"\x1b[31m", b"\x1b]0;t\x07", b"\x1b]8;;x\x1b\\", b"\x07", b"\xff"]
PIECES = st.sampled_from([*TEXTS, *OTHERS])
OUTPUTS = st.lists(PIECES, max_size=30).map(b"".join)


def kept(*chunks: bytes, head: int = 50, tail: int = 50) -> OutputBuffer:
    output = OutputBuffer(head=head, tail=tail)
    for chunk in chunks:
        output.write(chunk)
    output.finish()
    return output


def test_short_output_is_kept_unchanged() -> None:
    output = kept("grün\n".encode(), b"\tlast line")

    assert output.text() == "grün\n\tlast line"
    assert (output.total, output.dropped) == (15, 0)


def test_long_output_keeps_its_beginning_and_its_end() -> None:
    output = kept(*[b"%03d " % number for number in range(250)], head=8, tail=12)

    assert output.text() == ("000 001 \n[983 of 1000 characters are left out here]\n 248 249 ")
    assert output.dropped == 980


def test_a_cut_shows_no_half_of_a_word() -> None:
    """It may be half of a key, which the redactor would not recognize."""
    key = b"sk-proj-" + b"a1" * 20
    output = kept(b"begin " + key, b" x" * 500, key + b" end", head=20, tail=20)

    assert output.text().startswith("begin \n[")
    assert output.text().endswith("here]\n end")
    assert output.tail_text(20) == " end"
    assert "a1" not in output.text() + output.tail_text(20)


def test_a_chunk_longer_than_all_that_is_kept_is_cut_too() -> None:
    output = kept(b"first", b"x" * 1000 + b"last", head=5, tail=4)

    assert output.text() == "first\n[1000 of 1009 characters are left out here]\nlast"


def test_an_end_of_no_characters_is_possible() -> None:
    assert kept(b"abc", b"d" * 9000, head=3, tail=0).text() == (
        "abc\n[9000 of 9003 characters are left out here]\n"
    )


@given(st.text(alphabet="ab\n", max_size=60), st.integers(0, 20), st.integers(0, 20))
def test_head_and_tail_equal_those_of_the_whole_output(printed: str, head: int, tail: int) -> None:
    output = kept(*[char.encode() for char in printed], head=head, tail=tail)

    if len(printed) <= head + tail:
        assert output.text() == printed
    else:
        # But for the words that are cut, if they are not all there is.
        first, last = printed[:head], printed[len(printed) - tail :]
        first = first[: first.rfind("\n") + 1] if "\n" in first else first
        last = last[last.find("\n") :] if "\n" in last else last
        missing = len(printed) - len(first) - len(last)
        assert output.text() == (
            f"{first}\n[{missing} of {len(printed)} characters are left out here]\n{last}"
        )


@given(OUTPUTS, st.lists(st.integers(0, 100), max_size=8))
def test_chunk_boundaries_make_no_difference(printed: bytes, cuts: list[int]) -> None:
    """Characters, line ends and escape sequences come in two chunks as well as in one."""
    cuts = [0, *sorted(min(cut, len(printed)) for cut in cuts), len(printed)]

    in_chunks = kept(*(printed[begin:end] for begin, end in pairwise(cuts)), head=1000)

    assert in_chunks.text() == kept(printed, head=1000).text()


@given(st.one_of(OUTPUTS, st.binary()))
def test_kept_output_holds_no_control_characters(printed: bytes) -> None:
    text = kept(printed, head=10_000).text()

    assert all(char in "\n\t" or ord(char) >= 32 for char in text)
    assert not {*text} & {"\x7f", "\x9b", "\u202e", "\u2066"}


@pytest.mark.parametrize(
    "sequence",
    [
        b"\x1b[1;31m",
        b"\x1b[K",
        b"\x1b[?25l",
        b"\x1b[38:2::1:2:3m",
        b"\x1b]0;a title\x07",
        b"\x1b]8;;https://example.com\x1b\\",
        b"\x1bP1$r\x1b\\",
        b"\x1b(B",
        b"\x1b7",
        b"\x1bM",
    ],
)
def test_escape_sequences_leave_no_trace(sequence: bytes) -> None:
    assert kept(b"be" + sequence + b"fore").text() == "before"


def test_an_unterminated_escape_sequence_does_not_swallow_later_output() -> None:
    """A stray escape would otherwise hide all that the command says after it."""
    printed = b"\x1b]0;never ended" + b"x" * 10_000 + b"\nseen"

    assert kept(printed, head=20_000).text().endswith("x\nseen")
    assert kept(printed[:6000], printed[6000:], head=20_000).text().endswith("x\nseen")


def test_incomplete_characters_at_the_end_of_output_are_shown() -> None:
    assert kept(b"half \xe2\x82").text() == "half \ufffd"
    assert kept(b"line\r").text() == "line\n"
    assert kept(b"bold \x1b[1").text() == "bold \ufffd[1"


def test_the_states_of_a_progress_bar_are_lines() -> None:
    output = kept(b"10%\r", b"50%\r100%\r\n", b"done\n")

    assert output.text() == "10%\n50%\n100%\ndone\n"


def test_writing_returns_the_text_that_was_taken_in() -> None:
    output = OutputBuffer()

    assert output.write(b"a\x1b[1mb\xe2\x82") == "ab"
    assert output.write(b"\xac\n") == "€\n"


class TestSince:
    def test_output_since_a_mark_is_only_the_new_text(self) -> None:
        output = OutputBuffer(head=3, tail=5)
        output.write(b"abcd")
        first, mark = output.since(0)
        output.write(b"ef")
        second, mark = output.since(mark)

        assert (first, second) == ("abcd", "ef")
        assert output.since(mark) == ("", mark)

    def test_output_since_a_mark_counts_the_dropped_characters(self) -> None:
        output = OutputBuffer(head=3, tail=5)
        output.write(b"abcd")
        _, mark = output.since(0)
        output.write(b"e" * 90 + b"12345")

        assert output.since(mark) == ("\n[90 of 99 characters are left out here]\n12345", 99)

    def test_an_invalid_mark_is_clamped(self) -> None:
        output = kept(b"abc")

        assert output.since(-5) == ("abc", 3)
        assert output.since(1000) == ("", 3)

    def test_the_last_characters_are_found(self) -> None:
        output = kept(b"abcdefgh", head=2, tail=4)

        assert output.tail_text(3) == "fgh"
        assert output.tail_text(0) == ""
        assert output.tail_text(100) == output.text()


def test_a_key_is_not_cut_in_two_in_endless_words() -> None:
    key = "K" * 40
    printed = f"{'a' * 2_980}{key}{'b' * 9_000}{key}{'c' * 2_980}"
    output = kept(printed.encode(), head=3_000, tail=3_000)

    for shown in (output.text(), output.lines().text, output.tail_text(3_000)):
        assert "K" not in shown
        assert "ccc" in shown


class TestLooseEnds:
    @pytest.mark.parametrize(
        ("printed", "loose"),
        [
            (b"one two", 3),
            (b"one two\n", 0),
            (b"one two ", 0),
            (b"one", 3),
            (b"a" * 5_000, LONGEST_WORD),
            (b"", 0),
        ],
    )
    def test_a_word_that_may_go_on_is_loose(self, printed: bytes, loose: int) -> None:
        output = OutputBuffer(head=100, tail=2_000)
        output.write(printed)

        assert output.open_word_length() == loose
        assert output.open_word_length() == 0, "nothing has come since"
        output.write(b"x")
        output.finish()
        assert output.open_word_length() == 0, "nothing will come"

    @pytest.mark.parametrize(
        ("mark", "before"), [(3, "bc"), (5, "de"), (50, ""), (94, ""), (97, "vw")]
    )
    def test_text_before_a_mark_is_found_while_it_is_kept(self, mark: int, before: str) -> None:
        output = kept(b"abcde", b"-" * 89, b"uvwxyz", head=5, tail=6)

        assert output.before(mark, 2) == before

    def test_text_before_a_mark_may_span_head_and_tail(self) -> None:
        output = kept(b"abcdefgh", head=4, tail=4)

        assert output.before(6, 4) == "cdef"


class TestLines:
    def test_the_last_ones_are_shown_unless_asked_otherwise(self) -> None:
        output = kept(b"".join(b"%d\n" % number for number in range(500)), head=5000)

        view = output.lines()

        assert view.text.split("\n") == [str(number) for number in range(300, 500)]
        assert (view.begin, view.end, view.total) == (300, 500, 500)

    @given(
        st.text(alphabet="a\n", max_size=20), st.none() | st.integers(-2, 30), st.integers(1, 10)
    )
    def test_line_numbers_match_the_lines(
        self, printed: str, offset: int | None, limit: int
    ) -> None:
        lines = printed.split("\n")[: len(printed.splitlines())]

        view = kept(printed.encode(), head=7).lines(offset, limit)

        assert view.total == len(lines)
        assert view.text.split("\n")[: view.end - view.begin] == lines[view.begin : view.end]
        wanted = max(0, len(lines) - limit) if offset is None else max(0, offset)
        assert view.begin == min(wanted, len(lines))
        assert view.end == min(view.begin + limit, len(lines))

    def test_lines_count_also_where_they_are_dropped(self) -> None:
        output = kept(*[b"line %d\n" % number for number in range(100)], head=16, tail=17)
        missing = "[759 of 790 characters are left out here]"

        assert output.lines(0, 2).text == "line 0\nline 1"
        assert output.lines(98, 2).text == "line 98\nline 99"
        assert output.lines(97, 3).text == f"{missing}\n\nline 98\nline 99"
        assert output.lines(40, 5).text == missing
        assert output.lines(1, 99).text == f"line 1\n\n{missing}\n\nline 98\nline 99"

    def test_one_line_that_is_too_long_is_shown_in_two_parts(self) -> None:
        output = kept(b"begin" + b"x" * 100 + b"end", head=5, tail=3)

        assert output.lines().text == ("begin\n[100 of 108 characters are left out here]\nend")
        assert output.lines().total == 1


def test_writing_byte_by_byte_costs_no_more_memory() -> None:
    """One piece per byte would cost fifty times the kept output."""
    output = OutputBuffer(head=1000, tail=30_000)
    euro = "€".encode()
    tracemalloc.start()
    try:
        for _ in range(40_000):
            output.write(euro)
        current, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert output.total == 40_000
    assert current < 700_000
