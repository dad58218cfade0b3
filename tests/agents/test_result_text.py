"""A tool's answer is cut to a length that a model can read, and the rest is kept."""

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agents import CallId, DefinitionError, Tool, ToolCall, ToolError, tool
from orchestrator.agents.tools.long_results import Spill, shortened
from orchestrator.agents.tools.result_text import as_text

LONG = "".join(f"line {number} ä\n" for number in range(1000))


@attrs.frozen
class Place:
    town: str
    floor: int
    code: str
    _secret: str = "hidden"


async def use(used: Tool) -> str:
    answer = await used.run(ToolCall(used.name, {}, id=CallId("1")))
    assert isinstance(answer, str)
    return answer


def answering(text: str, **options: Any) -> Tool:
    async def answer() -> str:
        await trio.lowlevel.checkpoint()
        return text

    return tool(**options)(answer)


def saved_in(answer: str) -> tuple[Path, int, int]:
    """Return what the model reads of the whole: its file, and where to read on."""
    _, _, note = answer.partition("in the file ")
    file, _, rest = note.partition("; what is left out starts there at character ")
    character, _, rest = rest.partition(" (byte ")
    return Path(file), int(character), int(rest.partition(")")[0])


@pytest.fixture(name="spill")
def spill_in_a_new_folder(tmp_path: Path) -> Spill:
    return Spill(tmp_path / "results")


@pytest.fixture(name="full_disk")
def disk_that_takes_no_more(tmp_path: Path) -> Spill:
    """Stand in for a full disk: a file is where the folder should be."""
    (tmp_path / "results").write_text("")
    return Spill(tmp_path / "results")


@pytest.mark.realtime
async def test_the_model_reads_both_ends_of_a_long_answer_and_its_path(spill: Spill) -> None:
    answer = await use(answering(LONG, limit=400, spill=spill))

    assert answer.startswith(LONG[:300] + "\n\n[")
    assert answer.endswith(".]\n\n" + LONG[-100:])
    assert f"[{len(LONG) - 400} of {len(LONG)} characters are left out here." in answer


@pytest.mark.realtime
async def test_a_long_answer_is_saved_whole(spill: Spill) -> None:
    file, character, byte = saved_in(await use(answering(LONG, limit=400, spill=spill)))

    assert file.read_text() == LONG
    assert file.read_text()[character:] == LONG[300:]
    assert file.read_bytes()[byte:].decode() == LONG[300:]


@pytest.mark.realtime
async def test_an_error_is_kept_as_an_answer_is(spill: Spill) -> None:
    """A program that fails may say more than one that succeeds."""

    @tool(limit=400, spill=spill)
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise ToolError(LONG)

    with pytest.raises(ToolError) as caught:
        await use(fail)

    assert saved_in(str(caught.value))[0].read_text() == LONG


@pytest.mark.realtime
async def test_an_answer_comes_also_when_it_cannot_be_kept(full_disk: Spill) -> None:
    answer = await use(answering(LONG, limit=400, spill=full_disk))

    assert answer.startswith(LONG[:300])
    assert "They could not be saved: [Errno 17] File exists" in answer
    assert answer.endswith(LONG[-100:])


@pytest.mark.realtime
async def test_a_lone_surrogate_is_saved_as_a_question_mark(spill: Spill) -> None:
    answer = await use(answering("\udcff" * 500, limit=400, spill=spill))

    assert saved_in(answer)[0].read_text() == "?" * 500


@pytest.mark.parametrize("limit", [0, len(LONG)])
async def test_an_answer_within_the_limit_is_unchanged(limit: int, full_disk: Spill) -> None:
    assert await use(answering(LONG, limit=limit, spill=full_disk)) == LONG


@pytest.mark.realtime
async def test_answers_have_a_limit_by_default(spill: Spill) -> None:
    text = "x" * 50_000

    assert await use(answering(text, spill=spill)) == text
    assert "[1 of 50001 characters" in await use(answering(text + "x", spill=spill))


def test_a_negative_answer_limit_is_refused() -> None:
    with pytest.raises(DefinitionError, match="tool 'answer': no answer has -1"):
        answering("", limit=-1)


def test_only_the_user_can_read_saved_answers(spill: Spill) -> None:
    file = spill.save("mine")

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_the_same_text_is_kept_once(spill: Spill) -> None:
    first, other, again = (spill.save(text) for text in ("a", "b", "a"))

    assert first == again != other
    assert sorted(first.parent.iterdir()) == sorted([first, other])


def test_an_incomplete_saved_answer_is_written_again(spill: Spill) -> None:
    """The machine may have stopped before all of it was on the disk."""
    spill.save("whole").write_text("")

    assert spill.save("whole").read_text() == "whole"


def test_a_failed_write_leaves_no_temporary_file(spill: Spill) -> None:
    file = spill.save("whole")
    file.unlink()
    file.mkdir()

    with pytest.raises(IsADirectoryError):
        spill.save("whole")
    assert list(file.parent.iterdir()) == [file]


def test_answers_are_not_saved_in_a_folder_that_others_can_write(tmp_path: Path) -> None:
    """Among the temporary files, another user may have made the folder first."""
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    leading_elsewhere = tmp_path / "link"
    leading_elsewhere.symlink_to(tmp_path)

    for folder in (open_to_all, leading_elsewhere):
        with pytest.raises(PermissionError, match="that we alone can write to"):
            Spill(folder).save("mine")


def test_the_path_of_a_saved_answer_is_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    assert Spill(Path("results")).save("mine").parent == tmp_path / "results"


def test_answers_are_saved_in_the_temporary_folder_of_the_user_by_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    folder = Spill().save("mine").parent

    assert folder == tmp_path / f"orchestrator-results-{os.getuid()}"


@given(st.text(min_size=2), st.data())
def test_the_shown_and_the_omitted_text_make_up_the_whole(text: str, data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, len(text) - 1))

    answer = shortened(text, limit, Path("file"))
    _, start, byte = saved_in(answer[limit - limit // 4 :])

    assert answer.startswith(text[:start])
    assert text.encode()[byte:].decode() == text[start:]
    assert answer.endswith(text[len(text) - (limit - start) :])


def test_fields_come_in_the_order_they_were_declared() -> None:
    ulm = Place("Ulm", 0, "x")
    shown = '{"town":"Ulm","floor":0,"code":"x"}'

    assert as_text("look", ulm) == shown
    assert as_text("look", {"at": [(ulm, 1)]}) == f'{{"at":[[{shown},1]]}}'


def test_a_field_that_has_no_value_is_left_out() -> None:
    """As msgspec does it."""

    @attrs.define
    class Parcel:
        weight: int
        arrived: str = attrs.field(init=False)

    assert as_text("look", Parcel(3)) == '{"weight":3}'


def test_a_result_that_contains_itself_is_a_definition_error() -> None:
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(DefinitionError, match="tool 'look' returned list"):
        as_text("look", endless)
