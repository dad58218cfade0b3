"""An agent draws itself, and all agents below it, before it runs."""

import re
from typing import Any
from xml.etree import ElementTree as ET

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import (
    Agent,
    Budget,
    Limits,
    Pipeline,
    agent,
    best,
    confirm,
    delegate,
    fallback,
    map_each,
    map_reduce,
    parallel,
    race,
    refine,
    retry,
    route,
    tool,
    vote,
)
from orchestrator.agents.pictures.diagram import (
    MOST_DELEGATES,
    Box,
    Frame,
    Node,
    Row,
    boxes_of,
    diagram_of,
)
from orchestrator.agents.pictures.layout import (
    WIDEST_ROW,
    WIDEST_TEAM,
    PlacedBox,
    PlacedFrame,
    layout,
)
from orchestrator.agents.pictures.svg import Counts, svg

SVG = "{http://www.w3.org/2000/svg}"


@attrs.frozen
class Question:
    text: str


@tool
def search(query: str) -> str:
    """Search."""
    return query


@tool
def fetch(address: str) -> str:
    """Fetch."""
    return address


def worker(name: str, **options: object) -> Agent:
    return Agent(name, model="test:model", **options)  # type: ignore[arg-type]


def texts(picture: str) -> list[str]:
    """Return the texts of a picture, as a reader sees them."""
    elements = ET.fromstring(picture).iter(f"{SVG}text")
    return ["".join(element.itertext()) for element in elements]


def box_of(node: Node, name: str) -> Box:
    return next(box for box in boxes_of(node) if box.agent == name)


def test_a_box_has_the_model_the_tools_and_the_limits_of_its_agent() -> None:
    lead = worker(
        "lead",
        tools=[search, fetch],
        approve=[confirm("fetch")],
        limits=Limits(usd=0.05, seconds=60),
        budget=Budget(tasks=9),
    )

    assert box_of(diagram_of(lead).body, "lead") == Box(
        agent="lead",
        model="test:model",
        tools="search · fetch !",
        limits=("≤ $0.05 · 60 s", "≤ 9 tasks"),
        asks=True,
        delegates_note="may delegate",
    )
    assert "search · fetch !" in texts(lead.to_svg())


def test_a_sequence_has_types_on_its_arrows() -> None:
    plan = Agent("plan", model="m", output=list[Question])
    write = worker("write")

    diagram = diagram_of((plan >> write).named("brief"))

    assert diagram.program == "plan >> write"
    assert isinstance(diagram.body, Row)
    assert diagram.body.types == ("list[Question]",)
    assert {"text", "list[Question]", "str"} <= {*texts((plan >> write).to_svg())}


a, b, c = worker("a"), worker("b"), worker("c")
SHAPES: dict[str, tuple[Pipeline[Any, Any], str]] = {
    "map_each": (map_each(a, limit=20), "for each item, 20 at once"),
    "map_each, kept": (map_each(a).settled(), "failures are kept"),
    "map_reduce": (map_reduce(a, b), "for each item"),
    "parallel": (parallel(a, b), "all at once"),
    "parallel, quorum": (parallel(a, b, c).quorum(2), "the first 2 answers"),
    "race": (race(a, b), "the first answer wins"),
    "vote": (vote(a, times=3, least=2), "the commonest of 3, at least 2"),
    "best": (best(a, of=4, by=lambda it: float(len(it))), "the best of 4"),
    "route": (route(lambda _: "x", {"x": a}, otherwise=b), "one of them"),
    "retry": (retry(a, times=2), "at most 2 times"),
    "fallback": (fallback(a, b), "the next if one fails"),
    "refine": (refine(a, until=lambda _: ""), "at most 3 rounds"),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_a_combinator_is_a_frame_with_its_rule(kind: str) -> None:
    pipeline, rule = SHAPES[kind]

    body = diagram_of(pipeline).body

    assert isinstance(body, Frame)
    assert body.title == kind.partition(",")[0]
    assert body.note == rule
    assert rule in texts(pipeline.to_svg())


def test_a_named_combinator_has_both_names() -> None:
    body = diagram_of(race(a, b).named("archive")).body

    assert isinstance(body, Frame)
    assert body.title == "archive: race"


def test_routes_label_their_agents() -> None:
    pipeline = route(worker("triage"), {"billing": a, "orders": b}, otherwise=c)

    labels = {box.agent: box.label for box in boxes_of(diagram_of(pipeline).body)}

    assert labels == {"a": "billing", "b": "orders", "c": "otherwise", "triage": "chooses"}


def test_a_function_draws_the_agents_that_it_names() -> None:
    helper = worker("helper")

    @agent
    async def program(goal: str) -> str:
        """Delegate."""
        return await delegate(helper, goal)

    box = box_of(diagram_of(program).body, "program")
    assert box.model == "program"
    assert [it.agent for it in box.delegates if isinstance(it, Box)] == ["helper"]


def test_an_agent_that_occurs_again_is_a_reference() -> None:
    shared = worker("shared", delegates=[worker("deep")])
    lead = worker("lead", delegates=[worker("first", delegates=[shared]), shared])

    boxes = [box for box in boxes_of(diagram_of(lead).body) if box.agent == "shared"]

    assert [box.is_reference for box in boxes] == [False, True]
    assert boxes[1].delegates == ()


def test_many_delegates_are_folded() -> None:
    lead = worker("lead", delegates=[worker(f"w{number}") for number in range(20)])

    names = [box.agent for box in boxes_of(diagram_of(lead).body)][1:]

    assert len(names) == MOST_DELEGATES
    assert names[-1] == "+ 9 more"


def test_a_wide_pipeline_continues_in_the_next_line() -> None:
    pipeline = worker("step0") >> worker("step1")
    for number in range(2, 12):
        pipeline >>= worker(f"step{number}")

    placed = [it for it in layout(diagram_of(pipeline)).placed if isinstance(it, PlacedBox)]

    assert len({it.y for it in placed}) > 1
    assert max(it.x + it.width for it in placed) <= WIDEST_ROW


def lead_of(name: str, team: list[Agent]) -> Agent:
    return worker(name, delegates=team)


def agents(depth: int = 3) -> st.SearchStrategy[Agent]:
    names = st.from_regex(r"[a-z]{1,30}", fullmatch=True)
    leaves = st.builds(worker, names)

    def larger(parts: st.SearchStrategy[Agent]) -> st.SearchStrategy[Agent]:
        several = st.lists(parts, min_size=2, max_size=5, unique_by=lambda it: it.name)
        return st.one_of(
            st.builds(lead_of, names, several),
            parts.map(lambda it: it >> worker("last")),
            several.map(lambda it: race(*it)),
            parts.map(lambda it: map_reduce(it, worker("merge"))),
            parts.map(lambda it: map_each(it, limit=3)),
            parts.map(lambda it: vote(it, times=2)),
        )

    return st.recursive(leaves, larger, max_leaves=2**depth)


@given(agents())
def test_no_box_covers_another_and_every_box_lies_in_its_picture(drawn: Agent) -> None:
    picture = layout(diagram_of(drawn))
    boxes = [it for it in picture.placed if isinstance(it, PlacedBox)]

    for number, box in enumerate(boxes):
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= picture.width
        assert box.y + box.height <= picture.height
        for other in boxes[number + 1 :]:
            assert (
                box.x + box.width <= other.x
                or other.x + other.width <= box.x
                or box.y + box.height <= other.y
                or other.y + other.height <= box.y
            ), (box.box.agent, other.box.agent)
    for frame in picture.placed:
        if isinstance(frame, PlacedFrame):
            assert frame.x + frame.width <= picture.width


@given(st.text(min_size=1, max_size=40))
def test_names_of_models_are_only_shown(name: str) -> None:
    drawn = Agent("lead", model=f"x{name}")

    ET.fromstring(drawn.to_svg())
    chart = drawn.to_mermaid()

    assert re.fullmatch(r'[\w .,:;!?/()×·↓✓✗◐⊘…≤|"<>\[\]#\n-]*', chart), chart


def test_markup_in_a_name_stays_text() -> None:
    drawn = Agent("lead", model="<script>alert(1)</script>")

    assert "<script" not in drawn.to_svg()
    assert "<script" not in drawn.to_mermaid()


def test_mermaid_has_frames_arrows_with_types_and_dotted_arrows_to_delegates() -> None:
    pipeline = Agent("plan", model="m", output=list[str]) >> map_each(
        worker("read", delegates=[worker("help")])
    )

    assert pipeline.to_mermaid().splitlines() == [
        "flowchart LR",
        '  input(( )) -->|"text"| n1',
        '  n1["plan<br/>m<br/>no tools<br/>gives list#91;str#93;"]',
        '  subgraph n2["map_each · for each item"]',
        '    n3[["read<br/>test:model<br/>no tools<br/>gives str"]]',
        '    n4["help<br/>test:model<br/>no tools<br/>gives str"]',
        "    n3 -.-> n4",
        "  end",
        '  n1 -->|"list#91;str#93;"| n2',
        '  n2 -->|"list#91;str#93;"| output(( ))',
    ]


def test_counts_replace_the_limits_and_move_no_box() -> None:
    lead = worker("lead", limits=Limits(usd=1), delegates=[worker("read")])
    counts = {"lead": Counts(total=200, done=12, failed=3, waiting=1, running=20)}

    before, during = lead.to_svg(), svg(lead, counts)

    assert "≤ $1.00" in texts(before)
    assert "≤ $1.00" not in texts(during)
    assert "12/200 ✗3 !1 ◐20" in texts(during)
    assert "not started" in texts(during)
    cards = re.compile(r'<rect class="card"[^>]*>')
    assert cards.findall(before) == cards.findall(during)


def test_a_notebook_shows_the_picture() -> None:
    assert a._repr_svg_() == a.to_svg()  # pyright: ignore[reportPrivateUsage]


def test_teams_wider_than_the_page_have_several_rows() -> None:
    lead = worker("lead", delegates=[worker(f"worker_{number}") for number in range(10)])

    placed = [it for it in layout(diagram_of(lead)).placed if isinstance(it, PlacedBox)]

    assert max(it.x + it.width for it in placed) < WIDEST_TEAM + 250
    assert len({it.y for it in placed}) > 2
