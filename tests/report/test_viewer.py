"""The viewer, as people meet it in a real browser: pointer, keyboard, eyes and screen readers."""

import gzip
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from orchestrator.agents import AssistantMessage, CallId, ToolCall, ToolMessage, Usage
from orchestrator.delegation import Mode, TaskId, root_of
from orchestrator.delegation.events import (
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    ModelFailure,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnStarted,
)
from tests.golden.make import DONE, HOSTILE, PUSH, ROOT, S, Story, hostile, needs
from tests.report.browser import Browser, Page
from tests.report.conftest import Opened, Written, write

AXE = gzip.decompress((Path(__file__).parent / "axe.min.js.gz").read_bytes()).decode()
VIEWER = "delegation.viewer"
TABS = ("summary", "tree", "graph", "flame", "cost", "failures")


def active(page: Page) -> dict[str, Any]:
    """Return the attributes of the active row, as a screen reader gets them."""
    found: dict[str, Any] = page.run(
        "(() => {const grid = document.activeElement;"
        "const row = document.getElementById(grid.getAttribute('aria-activedescendant'));"
        "return row && {...Object.fromEntries([...row.attributes].map("
        "it => [it.name, it.value])), role: grid.getAttribute('role'),"
        "text: row.innerText}})()"
    )
    return found


def shown(page: Page) -> list[str]:
    """Return the keys of all rows."""
    rows: list[str] = page.run(f"{VIEWER}.rows.map(row => row.key)")
    return rows


def focus_tree(page: Page) -> None:
    page.run(f"{VIEWER}.grid.focus()")
    page.settle()


# 1


@pytest.mark.parametrize("report", ["few", "many"])
def test_a_report_makes_no_request_and_logs_no_complaint(
    report: str, opened: Opened, request: pytest.FixtureRequest
) -> None:
    written: Written = request.getfixturevalue(report)
    page = opened(written)
    for tab in TABS:
        page.run(f"{VIEWER}.showTab('{tab}')")
        page.settle()

    assert page.requests == [written.file.as_uri()]
    assert page.complaints == []
    policy = page.run("document.querySelector('meta[http-equiv]').content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


# 2


def test_twenty_thousand_agents_are_a_small_page(many: Written, opened: Opened) -> None:
    page = opened(many)

    assert many.file.stat().st_size < 1_000_000
    assert page.run("document.querySelectorAll('*').length") < 1_500
    assert 20 <= page.run("document.querySelectorAll('.row').length") <= 60
    assert "of 20,000 agents" in page.run("document.querySelector('.footer').innerText")


def test_a_fully_opened_tree_renders_only_visible_rows(many: Written, opened: Opened) -> None:
    page = opened(many)
    page.run(f"{VIEWER}.expandAll()")
    focus_tree(page)
    page.press("End")

    assert len(shown(page)) == 20_000
    assert page.run("document.querySelectorAll('.row').length") <= 60
    assert active(page)["aria-rowindex"] == "20001"


# 3


def sums_of(usage: Usage) -> dict[str, int]:
    """Return a usage as the viewer has it: without a cache, nothing is saved."""
    return {name: value or 0 for name, value in asdict(usage).items()}


def test_sums_equal_the_journal(many: Written, opened: Opened) -> None:
    page = opened(many)
    ids = random.Random(1).sample([*many.tree], 200)

    there = page.run(
        f"{json.dumps(ids)}.map(id => {VIEWER}.model.task({VIEWER}.model.numbers.get(id)))"
    )

    for task in there:
        node = many.tree[TaskId(task["id"])]
        assert task["total"] == sums_of(node.total)
        assert task["usage"] == sums_of(node.usage)
        assert task["micro_usd"] == node.usage.micro_usd


def test_the_details_show_own_and_subtree_values(some: Written, opened: Opened) -> None:
    page = opened(some)
    total = some.tree.total
    table = page.run("document.querySelector('.details table').innerText")

    assert f"≥ ${total.micro_usd / 1_000_000:.4f}" in table
    assert f"{total.calls}" in table
    assert page.run(
        "[...document.querySelectorAll('.details thead th')].map(it => it.innerText)"
    ) == ["own", "subtree"]


def test_the_usage_of_a_broken_off_call_is_shown_as_an_estimate(
    folder: Path, opened: Opened
) -> None:
    story = Story()
    story.begin(PUSH)
    used = Usage(calls=1, input_tokens=7, output_tokens=15, micro_usd=3, estimated=1)
    reason = ModelFailure.BROKEN_OFF
    story.post(ModelFailed(root_of(S), "it was broken off", used, reason, "so far"))
    page = opened(write(folder / "broken.html", story.entries, run=S))

    assert "~22" in page.run("document.querySelector('header').innerText")
    assert "~22" in page.run("document.querySelector('.row').innerText")
    table = page.run("document.querySelector('.details table').innerText")
    assert "~15" in table
    assert "≥ $0.000003" in table


# 4


def test_a_wide_fan_out_is_one_group_with_matching_counts(many: Written, opened: Opened) -> None:
    page = opened(many)
    group = page.run(
        f"(() => {{const row = {VIEWER}.rows.find(row => row.kind === 'group');"
        "return {members: row.members.length, parent: row.parent, agent: row.agent,"
        f"below: row.members.reduce((sum, it) => sum + {VIEWER}.rollups.tasks[it], 0),"
        f"failed: row.members.reduce((sum, it) => sum + {VIEWER}.rollups.groups.failed[it], 0)"
        "}})()"
    )
    root = many.tree.root
    members = [it for it in many.tree.children(root) if many.tree[it].agent == "coder"]
    tallies = [many.tree.tally(it) for it in members]

    assert group["members"] == len(members) > 8
    assert group["below"] == sum(it.tasks for it in tallies)
    assert group["failed"] == sum(it.failed for it in tallies)
    assert f"×{len(members)}" in page.run("document.querySelector('.row.group').innerText")


def test_next_failed_opens_only_its_path(many: Written, opened: Opened) -> None:
    page = opened(many)
    page.run(f"{VIEWER}.collapseAll()")
    focus_tree(page)
    page.press("n")

    chosen = TaskId(page.run(f"{VIEWER}.active"))
    line = many.tree.ancestors(chosen)
    is_open = set(page.run(f"[...{VIEWER}.collapsed.expanded]"))
    assert many.tree[chosen].status in {"failed", "timed_out"}
    assert {it for it in is_open if "/" not in it} == set(line)
    assert "failed" in active(page)["text"] or "timed out" in active(page)["text"]

    page.press("n", "n", "Shift+N")
    assert page.run(f"{VIEWER}.active") != chosen


# 5


def test_a_search_shows_hits_with_their_ancestors_and_escape_restores(
    some: Written, opened: Opened
) -> None:
    page = opened(some)
    before = shown(page)
    focus_tree(page)
    page.press("/")
    page.type("oauth scopes #1")

    hits = {task for task in some.tree if "OAuth scopes #1" in some.tree[task].label}
    above = {it for hit in hits for it in some.tree.ancestors(hit)}
    assert set(shown(page)) == hits | above
    assert f"{len(hits)} found" in page.run("document.querySelector('.rows').innerText")

    page.press("Escape")
    assert shown(page) == before
    assert page.run("document.activeElement.getAttribute('role')") == "treegrid"


def test_a_filter_shows_one_status_and_all_above(some: Written, opened: Opened) -> None:
    page = opened(some)
    before = shown(page)
    page.click("[data-group=waiting]")

    hits = {it for it in some.tree if some.tree[it].status == "waiting"}
    assert set(shown(page)) == hits | {it for hit in hits for it in some.tree.ancestors(hit)}
    assert (
        page.run("document.querySelector('[data-group=waiting]').getAttribute('aria-pressed')")
        == "true"
    )

    page.click("[data-group=waiting]")
    assert shown(page) == before


def test_a_search_without_hits_is_reported(some: Written, opened: Opened) -> None:
    page = opened(some)
    page.run(f"{VIEWER}.field.focus()")
    page.type("there is no such thing")

    assert shown(page) == []
    assert page.run("document.querySelector('.nothing').checkVisibility()")
    assert page.complaints == []


# 6


def test_the_keyboard_alone_is_enough(some: Written, opened: Opened) -> None:
    page = opened(some)
    for _ in range(30):
        page.press("Tab")
        if page.run("document.activeElement.getAttribute('role')") == "treegrid":
            break
    row = active(page)
    assert row["role"] == "treegrid"
    assert (row["aria-level"], row["aria-posinset"], row["aria-setsize"]) == ("1", "1", "1")
    assert (row["aria-expanded"], row["aria-selected"]) == ("true", "true")

    page.press("ArrowDown")
    children = page.run(f"{VIEWER}.collapsed.below({VIEWER}.collapsed.task(0)).length")
    row = active(page)
    assert (row["aria-level"], row["aria-posinset"]) == ("2", "1")
    assert row["aria-setsize"] == str(children)

    is_open = row["aria-expanded"] == "true"
    page.press("ArrowLeft" if is_open else "ArrowRight")
    assert active(page)["aria-expanded"] == str(not is_open).lower()
    page.press("ArrowLeft", "ArrowLeft", "Enter")
    assert page.run("document.activeElement.className") == "transcript"
    assert "Ship the quarterly report" in page.run("document.activeElement.innerText")
    page.press("Escape")
    assert active(page)["aria-level"] == "1"


def test_keys_may_come_faster_than_frames(many: Written, opened: Opened) -> None:
    """Each key finds the rows as the one before left them."""
    page = opened(many)
    page.run(f"{VIEWER}.collapseAll()")
    focus_tree(page)
    page.run(
        "['ArrowRight', 'ArrowDown', 'ArrowRight', 'ArrowDown'].forEach(key =>"
        " document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key})))"
    )
    page.settle()

    assert active(page)["aria-level"] == "3"


def test_keys_act_as_soon_as_the_page_is_there(some: Written, opened: Opened) -> None:
    page = opened(some)
    page.press("n")

    chosen = TaskId(page.run(f"{VIEWER}.active"))
    assert some.tree[chosen].status in {"failed", "timed_out"}


def test_a_transcript_reads_as_a_chat_with_its_tool_calls_as_cards(
    folder: Path, opened: Opened
) -> None:
    story = Story()
    story.begin(PUSH)
    call = ToolCall("search", {"words": "trio"}, id=CallId("c_1"))
    story.post(
        ModelAnswered(ROOT, AssistantMessage("I will **look**.", (call,))),
        ToolAnswered(ROOT, ToolMessage(CallId("c_1"), '{"found": 3}')),
    )
    page = opened(write(folder / "chat.html", story.entries, run=S))
    page.run("document.querySelector('.transcript details').open = true")
    page.settle()

    texts = page.run(
        "['.message.user .text', '.message.assistant strong', '.tool .name', '.tool .state',"
        " '.tool .body'].map(it => document.querySelector(`.transcript ${it}`).innerText)"
    )
    assert texts[:4] == ["Find out", "look", "search", "✓"]
    assert '"words": "trio"' in texts[4]
    assert '"found": 3' in texts[4]
    assert page.run("document.querySelector('.tool').className") == "tool"


def test_the_details_can_be_made_wider(some: Written, opened: Opened) -> None:
    page = opened(some)
    wide = "document.querySelector('.details').getBoundingClientRect().width"
    before = page.run(wide)
    page.run("document.querySelector('.splitter').focus()")
    page.press("ArrowLeft", "ArrowLeft")

    assert page.run(wide) > before + 100
    page.run("localStorage.clear()")


def test_every_task_and_view_has_an_address(
    some: Written, opened: Opened, browser: Browser
) -> None:
    page = opened(some)
    page.press("n", "4")
    page.settle()
    address, chosen = page.run("location.href"), page.run(f"{VIEWER}.active")

    assert address.endswith(f"#task={chosen}&view=flame")
    other = browser.open(address)
    other.run("delegation.opened")
    assert other.run(f"[{VIEWER}.active, {VIEWER}.tab]") == [chosen, "flame"]
    other.run("location.hash = '#view=cost'")
    other.settle()
    assert other.run(f"{VIEWER}.tab") == "cost"
    other.close()


@pytest.mark.parametrize("column", ["tokens", "cost", "time"])
def test_a_click_on_a_column_sorts_the_rows_below_each_task(
    column: str, some: Written, opened: Opened
) -> None:
    page = opened(some)
    before = shown(page)
    click = f".head [data-column='{column}']"
    figures = {
        "tokens": f"{VIEWER}.model.tokens(it.number)",
        "cost": f"{VIEWER}.model.ofTotal(it.number, 3)",
        "time": f"{VIEWER}.model.seconds(it.number) ?? -1",
    }

    def below_the_root() -> list[float]:
        values: list[float] = page.run(
            f"{VIEWER}.rows.filter(it => it.kind === 'task' && it.level === 2)"
            f".map(it => {figures[column]})"
        )
        return values

    page.click(click)
    falling = below_the_root()
    page.click(click)
    rising = below_the_root()

    assert falling == sorted(falling, reverse=True)
    assert rising == sorted(rising)
    assert page.run("document.querySelector('[aria-sort]').ariaSort") == "ascending"
    page.click(click)
    assert shown(page) == before
    assert page.run("document.querySelector('[aria-sort]')") is None


def test_letters_act_only_in_the_tree(some: Written, opened: Opened) -> None:
    page = opened(some)
    page.run("document.querySelector('.theme').focus()")
    page.press("n", "w", "s", "0")

    assert page.run(f"{VIEWER}.active") == some.tree.root


# 7


def test_a_bar_is_where_its_time_is(some: Written, opened: Opened) -> None:
    page = opened(some)
    failed = next(
        task
        for task in some.tree
        if some.tree[task].status == "failed" and not some.tree.children(task)
    )
    page.run(f"{VIEWER}.reveal({VIEWER}.model.numbers.get('{failed}'))")
    page.settle()
    bar = page.run(f"{VIEWER}.barOf('{failed}')")
    column = page.run(
        "(() => {const {x, width} = document.querySelector('.bars')"
        ".getBoundingClientRect(); return [x, width]})()"
    )
    node = some.tree[failed]
    assert node.started is not None
    assert node.ended is not None
    whole = some.history.last_at - some.history.began
    share = (node.started - some.history.began) / whole

    # Some pixels are left free at both ends.
    free = min(12, 0.02 * column[1])
    left = column[0] + free + share * (column[1] - 2 * free)
    assert bar["x"] == pytest.approx(left, abs=2.5)
    assert bar["width"] == pytest.approx(
        max(2, (node.ended - node.started) / whole * (column[1] - 24)), abs=2
    )
    middle = page.pixel(bar["x"] + bar["width"] / 2, bar["y"])
    assert middle == (0xDF, 0x42, 0x38)
    assert page.pixel(bar["x"] - 4, bar["y"]) != middle


def test_dragging_over_the_strip_zooms_and_a_click_resets(some: Written, opened: Opened) -> None:
    page = opened(some)
    x, y, width = page.run(
        "(() => {const box = document.querySelector('.strip').getBoundingClientRect();"
        "return [box.x, box.y + box.height / 2, box.width]})()"
    )
    page.drag((x + width * 0.25, y), (x + width * 0.5, y))

    whole = some.history.last_at - some.history.began
    begin, end = page.run(f"{VIEWER}.window")
    assert begin - some.history.began == pytest.approx(0.25 * whole, abs=0.01 * whole)
    assert end - some.history.began == pytest.approx(0.5 * whole, abs=0.01 * whole)

    page.click_at(x + width * 0.75, y)
    assert page.run(f"{VIEWER}.window") is None


def test_a_long_idle_time_is_cut(folder: Path, opened: Opened) -> None:
    """Two turns of a minute with a night between them are two turns of a minute."""
    story = Story()
    story.begin(PUSH)
    one = story.ask("t1", mode=Mode.DETACHED)
    story.post(TaskStarted(one))
    story.end(one)
    story.post(TurnEnded(S, 1, DONE))
    story.post(MessageReceived(S, "Good morning"), after=8 * 3600.0)
    story.post(TurnStarted(S, 2, PUSH, (len(story.entries),)))
    two = story.ask("t2")
    story.post(TaskStarted(two))
    story.end(two)
    page = opened(write(folder / "night.html", story.entries, run=S))

    ((begin, end),) = page.run(f"{VIEWER}.idle")
    assert end - begin == pytest.approx(8 * 3600, abs=1)
    for task in (one, two):
        assert page.run(f"{VIEWER}.barOf('{task}').width") > 30
    scale = f"{VIEWER}.scaleFor(500)"
    for at in (begin - 1, begin + 3600, end + 1):
        assert page.run(f"{scale}.time({scale}.x({at}))") == pytest.approx(at, abs=0.01)


LISTEN = """
const drawn = CanvasRenderingContext2D.prototype.fillText;
window.labels = [];
CanvasRenderingContext2D.prototype.fillText = function (text, x, ...more) {
  if (this.canvas.classList.contains('axis')) {
    window.labels.push([text, x, x + this.measureText(text).width]);
  }
  return drawn.call(this, text, x, ...more);
};
"""


def test_labels_of_the_axis_do_not_overlap(folder: Path, opened: Opened) -> None:
    """In a run of milliseconds, a gap is as wide as a label, and moments lie beside it."""
    story = Story()
    story.now = 1_790_000_000.0
    story.begin(PUSH)
    first = story.entries[-1].at
    for number, pause in enumerate((13, 11), start=1):
        child = story.ask(f"t{number}", mode=Mode.DETACHED)
        story.post(TaskStarted(child))
        story.end(child)
        story.post(TurnEnded(S, number, DONE))
        story.post(MessageReceived(S, "And then?"), after=pause)
        story.post(TurnStarted(S, number + 1, PUSH, (len(story.entries),)))
    quick = [replace(entry, at=first + (entry.at - first) / 100) for entry in story.entries]
    page = opened(write(folder / "quick.html", quick, run=S))
    page.run(LISTEN)

    for width in range(800, 1_500, 100):
        page.run("window.labels.length = 0")
        page.resize(width, 860)
        page.settle()
        labels: list[Any] = page.run("window.labels")
        labels.sort(key=lambda label: label[1])
        assert any(text.startswith("⋯ ") for text, *_ in labels)
        assert len({text for text, *_ in labels}) == len(labels)
        for (_, _, end), (_, begin, _) in pairwise(labels):
            assert end <= begin, (width, labels)


# 8


def test_a_recording_is_marked_and_has_no_changing_actions(few: Written, opened: Opened) -> None:
    page = opened(few)

    assert "replay · read-only" in page.run("document.querySelector('.top').innerText")
    actions = page.run("[...document.querySelectorAll('.actions button')].map(it => it.innerText)")
    assert actions == ["Zoom", "Copy id"]


# 15


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_reports_no_problem(theme: str, some: Written, opened: Opened) -> None:
    page = opened(some)
    page.prefer(prefers_color_scheme=theme)
    page.run(f"{AXE}; 0")
    for tab in TABS:
        page.run(f"{VIEWER}.showTab('{tab}')")
        page.settle()
        found = page.run(
            "axe.run({resultTypes: ['violations']}).then(it => it.violations.map(one =>"
            " one.id + ': ' + one.nodes.slice(0, 3).map(node => node.html + ' '"
            " + node.failureSummary).join(' | ')))"
        )
        assert found == [], tab


def test_every_status_has_a_sign_and_a_word(some: Written, opened: Opened) -> None:
    page = opened(some)
    page.run(f"{VIEWER}.expandAll()")
    page.settle()
    words = page.run(
        "[...document.querySelectorAll('.row.task')].map(row =>"
        " [row.querySelector('.glyph').innerText, row.querySelector('.name').textContent])"
    )

    assert len(words) > 20
    assert page.run(
        "Object.values(delegation.STATUSES).every(it => it.glyph && it.word && it.group)"
    )
    for glyph, text in words:
        assert glyph
        assert any(
            word in text
            for word in ("done", "failed", "running", "waiting", "timed out", "cancelled")
        )


def test_reduced_motion_stops_all_animations(some: Written, opened: Opened) -> None:
    page = opened(some)
    page.prefer(prefers_reduced_motion="reduce")
    page.click("[data-group=failed]")

    assert page.run("document.getAnimations().length") == 0


def test_the_theme_can_be_switched(some: Written, opened: Opened) -> None:
    page = opened(some)
    page.prefer(prefers_color_scheme="light")
    light = page.run("getComputedStyle(document.body).backgroundColor")
    page.click(".theme")
    dark = page.run("getComputedStyle(document.body).backgroundColor")
    page.prefer(prefers_color_scheme="dark")
    page.click(".theme")

    assert light == page.run("getComputedStyle(document.body).backgroundColor")
    assert light != dark


@pytest.mark.parametrize("width", [800, 420])
def test_a_narrow_screen_keeps_the_tree(width: int, some: Written, opened: Opened) -> None:
    page = opened(some, width=width, height=900)

    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.querySelectorAll('.row').length") > 8
    name = page.run("document.querySelector('.row .name').getBoundingClientRect().width")
    assert name > 150
    page.run(f"{VIEWER}.showTab('summary')")
    page.settle()
    panel, footer = page.run(
        "['.panels', '.footer'].map(it => document.querySelector(it).getBoundingClientRect())"
        ".map(it => [it.top, it.bottom])"
    )
    assert abs(panel[1] - footer[0]) < 2


# Hostile words


def test_the_words_of_an_agent_are_shown_as_text(folder: Path, opened: Opened) -> None:
    report = write(folder / "hostile.html", hostile().entries, run=S, is_written=False)
    page = opened(report)
    for number in range(len(HOSTILE)):
        page.run(f"{VIEWER}.reveal({VIEWER}.model.numbers.get('t{number}'))")
        page.settle()
        page.run("new Promise(done => setTimeout(done, 20))")
    for tab in TABS:
        page.run(f"{VIEWER}.showTab('{tab}')")
        page.settle()

    assert page.run("globalThis.pwned") is None
    assert page.complaints == []
    assert len(page.requests) == 1
    assert page.run("document.querySelectorAll('img, iframe, object, link').length") == 0
    shown_text = page.run("document.body.innerText")
    assert HOSTILE[0] in shown_text
    assert not set("\u202e\u2066\u200f\x1b") & set(shown_text)


def test_addresses_of_this_machine_are_no_links(folder: Path, opened: Opened) -> None:
    story = Story()
    story.begin(PUSH, "root")
    task = story.ask("t0", "talker", goal="go")
    story.post(TaskStarted(task))
    story.say(task, "[a](http://127.0.0.1:8/) http://[::1]/ http://0x7f.1/ https://example.org/")
    page = opened(write(folder / "loopback.html", story.entries, run=S, is_written=False))
    page.run(f"{VIEWER}.reveal({VIEWER}.model.numbers.get('t0'))")
    page.settle()
    page.run("new Promise(done => setTimeout(done, 50))")

    links = page.run("[...document.querySelectorAll('.transcript a')].map(it => it.href)")
    assert links == ["https://example.org/"]
    assert "http://127.0.0.1:8/" in page.run("document.querySelector('.transcript').innerText")


def test_a_line_of_a_megabyte_is_cut_with_a_note(folder: Path, opened: Opened) -> None:
    report = write(folder / "long.html", hostile().entries, run=S, is_written=False)
    page = opened(report)
    page.run(f"{VIEWER}.reveal({VIEWER}.model.numbers.get('long'))")
    page.settle()
    page.run("new Promise(done => setTimeout(done, 50))")

    text = page.run("document.querySelector('.transcript').innerText")
    assert "980,000 more characters are not in this file" in text
    assert "show all 20,000 characters" in text
    assert page.run("document.documentElement.scrollWidth") <= 1440


# The rest of the page


def test_a_link_of_the_summary_leads_into_the_tree(some: Written, opened: Opened) -> None:
    page = opened(some)
    page.run(f"{VIEWER}.showTab('summary')")
    task = page.run("document.querySelector('#summary a[data-task]').dataset.task")
    page.click("#summary a[data-task]")

    assert page.run(f"[{VIEWER}.tab, {VIEWER}.active]") == ["tree", task]


def test_without_a_script_there_is_the_summary(some: Written, browser: Browser) -> None:
    page = browser.open(some.file)
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.go(some.file)
    text = page.run("document.body.innerText")
    page.close()

    for words in ("Failures (", "Costliest subtrees", "Critical path", "runs no script"):
        assert words in text


def test_a_click_in_the_flame_selects_its_task(some: Written, opened: Opened) -> None:
    page = opened(some)
    page.run(f"{VIEWER}.showTab('flame')")
    page.settle()
    x, y, number = page.run(
        f"(() => {{const [x, top, wide, number] = {VIEWER}.views.flame.drawn.at(-1);"
        "const box = document.querySelector('.flame .drawing').getBoundingClientRect();"
        "return [box.x + x + wide / 2, box.y + top + 5, number]})()"
    )
    page.click_at(x, y)

    assert page.run(f"{VIEWER}.selected") == number
    depth = page.run(f"{VIEWER}.views.flame.depth")
    page.run(f"{VIEWER}.views.flame.scroller.focus()")
    page.press("-")
    assert page.run(f"{VIEWER}.views.flame.depth") == depth - 1


def test_a_run_that_is_too_wide_for_bars_is_bands_that_add_up(
    many: Written, opened: Opened
) -> None:
    page = opened(many)
    flame = f"{VIEWER}.views.flame"
    page.run(f"{VIEWER}.showTab('flame'); {flame}.isChosen = true; {flame}.depth = 0")
    page.settle()

    tasks = page.run(f"{flame}.bands.shown.map(it => it.tasks.length)")
    failed = page.run(f"{flame}.bands.shown.map(it => it.failed.length)")
    assert sum(tasks) == len(many.tree)
    assert sum(failed) == many.tree.tally().failed
    assert "one for each chain of agents" in page.run(f"{flame}.note.innerText")
    x, y = page.run(
        "(() => {const box = document.querySelector('.flame .drawing').getBoundingClientRect();"
        "return [box.x + box.width / 2, box.y + 46 + 20]})()"
    )
    page.click_at(x, y)
    assert page.run(f"{VIEWER}.model.depth[{VIEWER}.selected]") == 1


def test_a_part_of_the_time_is_laid_out_as_deep_as_fits(many: Written, opened: Opened) -> None:
    page = opened(many)
    flame = f"{VIEWER}.views.flame"
    page.run(f"{VIEWER}.showTab('flame')")
    page.settle()
    whole = page.run(f"{flame}.depth")
    page.run(
        f"(() => {{const {{start, last}} = {VIEWER}.model; const at = start + (last - start) / 2;"
        f"{VIEWER}.zoom([at, at + (last - start) / 500])}})()"
    )
    page.settle()

    assert page.run(f"{flame}.depth") > whole


def test_arrows_lead_to_dependent_tasks(folder: Path, opened: Opened) -> None:
    page = opened(write(folder / "needs.html", needs().entries, run=S))
    page.run(f"{VIEWER}.showTab('graph')")
    page.settle()

    arrows = page.run(f"{VIEWER}.views.graph.needs.map(pair => pair.map(it => it.row.key))")
    assert arrows == [["t1", "t3"], ["t2", "t3"], ["t1", "t4"]]


def test_the_boxes_of_the_costs_add_up(many: Written, opened: Opened) -> None:
    page = opened(many)
    cost = page.run(
        "(() => {const sum = box => box.cost + box.children.reduce("
        "(all, it) => all + sum(it), 0);"
        f"return sum({VIEWER}.views.cost.merged)}})()"
    )

    assert cost == many.tree.total.micro_usd


def test_a_graph_that_no_browser_could_move_is_not_drawn(many: Written, opened: Opened) -> None:
    page = opened(many)
    page.run(f"{VIEWER}.expandAll(); {VIEWER}.showTab('graph')")
    page.settle()

    note = page.run("document.querySelector('.graph .note').innerText")
    assert note.startswith("20,000 rows are too many for a graph, which takes 3,000")
    page.run(f"{VIEWER}.collapseToFit()")
    page.settle()
    assert page.run(f"{VIEWER}.views.graph.nodes.length") == len(shown(page))


def test_the_graph_has_a_box_for_each_row(some: Written, opened: Opened) -> None:
    page = opened(some)
    page.run(f"{VIEWER}.showTab('graph')")
    page.settle()

    assert page.run(f"{VIEWER}.views.graph.nodes.length") == len(shown(page))
