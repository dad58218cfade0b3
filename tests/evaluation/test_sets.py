"""The evaluations in files of journals, as the console shows them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from orchestrator.products.evaluation.sets import SetsQuestion, answer_question
from tests.evaluation.made_sets import WORDS, make_sets, team

pytestmark = pytest.mark.realtime


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("sets")
    make_sets(found)
    return found


def ask(folder: Path, **question: Any) -> Any:
    files = tuple(str(it) for it in sorted(folder.glob("*.db")))
    asked = SetsQuestion(files=files, **question)
    return msgspec.json.decode(answer_question(msgspec.json.encode(asked)))


def test_sets_of_one_dataset_are_one_evaluation(folder: Path) -> None:
    [listed] = ask(folder)["data"]
    assert (listed["name"], listed["versions"]) == ("shouting", ["a", "b"])
    assert (listed["cases"], listed["runs"], listed["mean"]) == (len(WORDS), 2 * len(WORDS), 1.0)

    found = ask(folder, dataset="shouting")
    assert found["scores"] == ["correct", "quick"]
    assert [it["name"] for it in found["versions"]] == ["a", "b"]
    assert found["comparisons"][0]["verdict"] == "better"
    assert found["front"] == [[found["versions"][1]["cost"], 1.0]]
    assert sum(found["versions"][0]["bars"]["counts"]) == len(WORDS)
    assert found["cases"][-1]["name"] == "tree", "the case with equal scores is last"


def test_a_baseline_and_a_score_can_be_chosen(folder: Path) -> None:
    turned = ask(folder, dataset="shouting", baseline="b")
    assert turned["comparisons"][0]["verdict"] == "worse"
    quick = ask(folder, dataset="shouting", score="quick")
    assert {it["score"] for it in quick["versions"]} == {1.0}
    unknown = ask(folder, dataset="shouting", score="none", baseline="none")
    assert (unknown["score"], unknown["versions"][0]["name"]) == ("correct", "a")


def test_a_run_is_shown_with_its_tree(folder: Path) -> None:
    found = ask(folder, dataset="shouting")
    run = found["cases"][0]["values"][0]["runs"][0]
    shown = ask(folder, dataset="shouting", run=run)
    assert [it["name"] for it in shown["rows"]] == ["✓ team", "└─ ✓ writer[1]"]
    assert shown["scores"]["correct"]["reason"] == "It whispers."
    assert ask(folder, dataset="shouting", run="e_none-0") is None
    assert ask(folder, dataset="none") is None


def test_other_owners_and_damaged_files_are_left_out(folder: Path, tmp_path: Path) -> None:
    assert ask(folder, owner="ann")["data"] == []
    run = ask(folder, dataset="shouting")["cases"][0]["values"][0]["runs"][0]
    assert ask(folder, owner="ann", dataset="shouting", run=run) is None
    (tmp_path / "damaged.db").write_bytes(b"no journal" * 100)
    found = ask(tmp_path)
    assert (found["data"], found["unreadable"]) == ([], ["damaged.db"])


def test_equal_version_names_of_two_sets_stay_apart(tmp_path: Path) -> None:
    make_sets(tmp_path / "one", same=team(1, 10))
    make_sets(tmp_path / "two", same=team(7, 10))
    files = tuple(str(it / "same.db") for it in (tmp_path / "one", tmp_path / "two"))
    question = SetsQuestion(files=files, dataset="shouting")
    found = msgspec.json.decode(answer_question(msgspec.json.encode(question)))
    assert [it["name"] for it in found["versions"]] == ["same", "same (same)"]
