"""The file and the command that writes it, without a browser."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import trio

from orchestrator import Agent, MemoryJournal, ScriptedModel, open_orchestrator
from orchestrator.agents import Usage, UserMessage
from orchestrator.delegation import TaskId
from orchestrator.delegation.events import Entry, ModelAnswered, TurnEnded
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.run_history import read_history
from orchestrator.products.history.export_formats import html_report
from orchestrator.products.history.report import Transcripts, build_report, transcripts
from orchestrator.products.history.report.packed_tree import columns_of
from orchestrator.products.history.report.summary import cached_share, failure_groups, model_costs
from tests.golden.make import HOSTILE, PUSH, ROOT, S, Story, hostile, one_shot
from tests.report.conftest import Written
from tests.report.synthetic import SESSION, run_of

KINDS = [*Transcripts]


def html_of(
    entries: list[Entry], *, kind: Transcripts = Transcripts.ALL, is_written: bool = True
) -> str:
    run = next(entry.session for entry in entries if entry.session)
    history = read_history(run, entries, has_writer=is_written, wants_transcript=kind.wants)
    return build_report(history, version="0.1.0", transcripts=kind).html


def test_the_same_run_gives_the_same_file() -> None:
    assert html_of(run_of(5)) == html_of(run_of(5))


def test_another_fact_gives_another_hash() -> None:
    digests = {
        read_history(SESSION, entries, has_writer=True, wants_transcript=lambda _: False).digest
        for entries in (run_of(5), run_of(5), run_of(5)[:-1])
    }

    assert len(digests) == 2


def test_the_summary_has_the_figures(some: Written) -> None:
    html, tree = some.file.read_text(), some.tree
    total, work = tree.total, tree.parallelism(now=some.history.last_at)

    for words in (
        f"{total.unpriced} model calls without a known price",
        f"≥ ${total.micro_usd / 1_000_000:.2f}",
        f"<dd>{total.tokens:,}<small>",
        f"<dd>{work.peak}<small>",
        some.history.digest,
        "delegation-orchestrator 0.1.0",
    ):
        assert words in html
    for group in failure_groups(tree):
        assert f"{len(group.tasks):,} " in html
        for task in group.tasks[:3]:
            assert f">{tree[task].path}<" in html


def test_a_summary_stays_short_for_a_large_tree(many: Written) -> None:
    html = many.file.read_text()
    failed = many.tree.tally().failed

    assert f"Failures ({failed:,})" in html
    assert html.count('class="error"') == 1 + len(failure_groups(many.tree)) < 10
    assert many.file.stat().st_size < 1_000_000


def test_the_answer_of_the_run_is_on_top() -> None:
    entries = one_shot().entries
    answer = next(it.event.outcome.output for it in entries if isinstance(it.event, TurnEnded))
    html = html_of(entries, kind=Transcripts.FAILED)

    assert answer
    assert f'<pre class="answer" dir="auto">{answer}</pre>' in html
    assert html.index("<h2>Answer</h2>") < html.index('<dl class="tiles">')
    assert "<h2>Answer</h2>" not in html_of(entries, kind=Transcripts.NONE)


def test_costs_by_agent_and_model_add_up(some: Written) -> None:
    costs = model_costs(some.history)
    html = some.file.read_text()

    assert sum((it.usage for it in costs), Usage()) == some.tree.total
    assert len({(it.agent, it.model) for it in costs}) == len(costs) > 5
    assert "<h2>Cost by agent and model</h2>" in html
    assert f'<td class="">{costs[0].model}</td>' in html


@pytest.mark.parametrize(
    ("usage", "shown"),
    [
        (Usage(1, 100, 1), ""),
        (Usage(1, 100, 1, cached_tokens=80), "80 %"),
        (Usage(1, 100, 1, cached_tokens=80, saved_micro_usd=240_000), "80 %, saved $0.2400"),
        (Usage(1, 100, 1, cache_written_tokens=80, saved_micro_usd=-5_000_000), "0 %, lost $5.00"),
    ],
)
def test_the_costs_name_the_cached_share_and_the_money_saved(usage: Usage, shown: str) -> None:
    assert cached_share(usage) == shown


def test_numbers_do_not_make_another_error(many: Written) -> None:
    groups = failure_groups(many.tree)

    assert sum(len(it.tasks) for it in groups) == many.tree.tally().failed
    assert [len(it.tasks) for it in groups] == sorted(
        (len(it.tasks) for it in groups), reverse=True
    )


def test_a_small_report_keeps_transcripts_of_failed_tasks_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transcripts, "AUTO_BYTES", 250)
    monkeypatch.setattr(transcripts, "PACKET_CHARACTERS", 1)
    entries = one_shot().entries
    history = read_history(S, entries, has_writer=False, wants_transcript=lambda _: True)
    carried = transcripts.pack_transcripts(history, Transcripts.AUTO)
    whole = transcripts.pack_transcripts(history, Transcripts.ALL)

    assert [*carried.index] == ["t2"]
    assert carried.left_out == 3
    assert "--transcripts all has more room" in carried.sentence
    assert len(whole.index) == 4


def test_a_report_has_the_coordination_metrics_of_a_team() -> None:
    html, tasks = html_report(SESSION, run_of(5), has_writer=True)
    assert tasks > 1
    assert "<h2>Coordination</h2>" in html
    assert "<li>messages " in html


def test_a_run_of_a_dead_process_is_not_shown_as_running() -> None:
    entries = run_of(500, seed=3, until=75)

    assert "◐ running" in html_of(entries)
    assert "◌ interrupted" in html_of(entries, is_written=False)


def test_a_run_without_tasks_has_a_report() -> None:
    html = html_of(one_shot().entries[:2])

    assert "Nothing has failed." in html
    assert "Nothing was delegated." in html
    assert "Nothing has begun." in html


def test_facts_that_contradict_each_other_have_no_report() -> None:
    entries = run_of(5)

    with pytest.raises(JournalError, match="entry 10 contradicts those before it"):
        html_of([*entries[:6], *entries[9:]])


def test_hostile_words_are_escaped_in_the_summary() -> None:
    html = html_of(hostile().entries)

    assert html.count("<script") == html.count("</script>")
    assert len(re.findall("<script", html)) == len(
        re.findall(r'<script( type="[a-z/]+" id="[\w-]+")?>', html)
    )
    assert HOSTILE[1] not in html
    assert not set("\u202e\u2066\u200f\x1b\x00") & set(html)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_wanted_transcripts_are_in_the_file(kind: Transcripts) -> None:
    entries = one_shot().entries
    history = read_history(S, entries, has_writer=False, wants_transcript=kind.wants)
    carried = transcripts.pack_transcripts(history, kind)

    assert (
        set(carried.index)
        == {
            Transcripts.NONE: set(),
            Transcripts.FAILED: {"t2"},
            Transcripts.AUTO: {"s1", "t1", "t2", "t3"},
            Transcripts.ALL: {"s1", "t1", "t2", "t3"},
        }[kind]
    )
    if kind is Transcripts.NONE:
        assert "No transcripts are in this file" in carried.sentence
    else:
        assert "It keeps 20,000 characters of a message" in carried.sentence


@pytest.mark.parametrize("sources", [True, False])
def test_a_report_without_transcripts_has_no_source_of_a_script(sources: bool) -> None:
    story = Story()
    story.begin(PUSH, "root")
    script = json.dumps({"goal": "Count", "code": "# first\n" * 100})
    story.ask("t0", "script", goal=script)
    story.ask("t1", "other", goal=script)
    history = read_history(S, story.entries, has_writer=False, wants_transcript=lambda _: False)

    strings = columns_of(history, sources=sources)["strings"]

    assert (script in strings) is sources
    assert f"{script[:299]}…" in strings


@pytest.mark.parametrize(
    ("goal", "title"),
    [('{"goal":"Count","code":"1"}', "script: Count"), ("hello", "script: hello")],
)
def test_the_title_of_a_script_is_its_purpose(goal: str, title: str) -> None:
    async def entries() -> list[Entry]:
        journal = MemoryJournal([])
        agent = Agent("script", model=ScriptedModel.always("done"))
        async with open_orchestrator(journal) as orchestrator:
            await orchestrator.run(agent, goal)
        return journal.entries

    assert f"<title>{title} · run " in html_of(trio.run(entries))


def test_a_full_report_counts_the_omitted_transcripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "REPORT_CHARACTERS", 100)
    entries = one_shot().entries
    history = read_history(S, entries, has_writer=False, wants_transcript=lambda _: True)
    carried = transcripts.pack_transcripts(history, Transcripts.ALL)

    assert "t2" in carried.index
    assert carried.left_out == 4 - len(carried.index) > 0
    assert f"{carried.left_out} more are left out: the file is full." in carried.sentence


def test_the_transcript_of_a_settled_task_is_kept() -> None:
    """The ledger forgets the transcript of a settled task; the report must not."""
    entries = one_shot().entries
    transcripts_by_task = read_history(
        S, entries, has_writer=False, wants_transcript=lambda _: True
    ).transcripts

    assert isinstance(transcripts_by_task[ROOT].messages[0], UserMessage)
    spoken = [
        entry.event.message
        for entry in entries
        if isinstance(entry.event, ModelAnswered) and entry.event.task == "t1"
    ]
    assert [it for it in transcripts_by_task[TaskId("t1")].messages if it in spoken] == spoken


class Shell:
    """Runs the command in a folder of its own."""

    def __init__(self, home: Path, python: list[str]) -> None:
        self.home = home
        self.python = python

    def __call__(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        done = subprocess.run(
            [*self.python, "-m", "orchestrator", *arguments],
            capture_output=True,
            text=True,
            cwd=self.home,
            env={**os.environ, "ORCHESTRATOR_HOME": str(self.home / "state")},
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, python: list[str]) -> Shell:
    shell = Shell(tmp_path_factory.mktemp("shell"), python)
    shell("demo", "--seconds", "0")
    return shell


def test_the_command_prints_the_path_of_the_file(shell: Shell) -> None:
    out, err = shell("report", "--transcripts", "all")

    file = shell.home / out.strip()
    assert re.fullmatch(r"run-r_\w{10}\.html\n", out)
    assert "6 agents" in err
    assert file.read_text().startswith("<!doctype html>")


def test_the_command_writes_to_the_given_path(shell: Shell) -> None:
    (shell.home / "here.html").write_text("an older one")
    out, _ = shell("report", "r_", "-o", "here.html")

    assert out == "here.html\n"
    assert "Should our team adopt" in (shell.home / "here.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody"], "there is no run 'nobody'; see: orchestrator runs"),
        (["-o", "."], "is a directory; name a file with -o"),
        (["-o", "no/where.html"], "there is no directory no"),
        (["-o", "state/journal.db"], "is the journal itself"),
        (["-o", "/proc/run.html"], "/proc/run.html cannot be written"),
        (["--transcripts", "some"], '"auto", "none", "failed", "all"'),
        (["--journal", "none.db"], "there is no journal none.db"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], words: str, shell: Shell) -> None:
    out, err = shell("report", *arguments, code=2)

    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1
