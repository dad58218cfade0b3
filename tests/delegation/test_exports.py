"""Trees for other programs: each reads back what was written, whatever agents say."""

import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import msgspec
import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agents import Usage
from orchestrator.delegation import Ending, Mode, Status, TaskId, Tree
from orchestrator.delegation.tree.exports.chrome_trace import pack_lanes
from orchestrator.delegation.tree.exports.graphml import flat
from orchestrator.delegation.tree.intervals import last_moment
from tests.delegation.built_trees import add_task
from tests.delegation.tree_strategies import ROOT, trees

HOSTILE = [
    pytest.param("say \"hi\" and 'bye' \\", id="quotes"),
    pytest.param("one\ntwo\r\nthree\tfour", id="lines"),
    pytest.param("--> </style></svg><script>alert(1)</script>", id="markup"),
    pytest.param("]]> <![CDATA[ &amp; &#0; <!--", id="cdata"),
    pytest.param("\x00\x01\x1b[31mred\x7f\x9b\ufffe", id="controls"),
    pytest.param("\u202egnp.exe\u2066", id="direction"),
    pytest.param("\u200f\u061c\u200b\U000e0041\U000e0101\u2028\xad", id="unseen"),
    pytest.param("naïve 猫 🐈 ✓", id="unicode"),
    pytest.param('#quot; %{ end }"]; click n0 call x()', id="mermaid"),
    pytest.param('" ]; evil [label="\\', id="dot"),
]
CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069]"
    r"|[\U000e0000-\U000e0fff]"
)


def saying(words: str) -> Tree:
    """Return a small tree in which everything that can be said is said in these words."""
    tree = Tree(ROOT)
    add_task(
        tree, ROOT, parent=None, agent="editor", path="/editor", mode=Mode.ROOT, at=1.5, goal=words
    )
    tree.begin_turn(2.0)
    tree.set_status(ROOT, Status.RUNNING)
    for number, name in enumerate("ab"):
        add_task(
            tree,
            TaskId(name),
            parent=ROOT,
            agent="helper",
            path=f"/editor/helper[{number + 1}]",
            mode=Mode.DETACHED if number else Mode.JOINED,
            at=3.0,
            goal=words,
            label=words,
            needs=[TaskId("a")] if number else [],
        )
    tree.start(TaskId("a"), 3.25)
    tree.end(TaskId("a"), 4.0, words)
    tree.set_status(TaskId("a"), Ending.FAILED)
    tree.add_usage(TaskId("a"), Usage(calls=2, input_tokens=3, micro_usd=4, unpriced=1))
    return tree


def wide(children: int) -> Tree:
    tree = saying("x")
    for number in range(children):
        add_task(
            tree,
            TaskId(f"w{number}"),
            parent=ROOT,
            agent="coder",
            path=f"/editor/coder[{number + 1}]",
            mode=Mode.JOINED,
            at=5.0,
        )
    return tree


def described(tree: Tree, attributes: Callable[[Any], Any]) -> "nx.DiGraph[str]":
    """Return the graph as it should be read back."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for task in tree:
        graph.add_node(task, **attributes(tree[task].attributes()))
    graph.add_edges_from(tree.to_networkx().edges(data=True))
    return graph


def assert_same(one: "nx.Graph[Any]", two: "nx.Graph[Any]") -> None:
    assert dict(one.nodes(data=True)) == dict(two.nodes(data=True))
    assert list(one.nodes) == list(two.nodes)
    assert sorted(one.edges(data="kind")) == sorted(two.edges(data="kind"))


def readable(words: str) -> str:
    """Return words as XML can say them."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", words)


@pytest.mark.parametrize("words", HOSTILE)
def test_graphml_is_read_back_by_networkx_as_it_was(words: str) -> None:
    tree = saying(words)
    assert not CONTROLS.search(tree.to_graphml())
    read = nx.read_graphml(io.BytesIO(tree.to_graphml().encode()))
    expected = described(tree, flat)
    for _, node in expected.nodes(data=True):
        node |= {key: readable(node[key]) for key in ("goal", "label", "error")}

    assert_same(read, expected)
    assert "started" not in read.nodes["b"]
    assert read.nodes["a"]["usage_unpriced"] == 1
    assert json.loads(read.graph["turns"]) == [[2.0, None]]


@pytest.mark.parametrize("words", HOSTILE)
def test_node_link_json_is_read_back_by_networkx_as_it_was(words: str) -> None:
    tree = saying(words)
    assert not CONTROLS.search(tree.to_json())
    data = json.loads(tree.to_json())
    read = nx.node_link_graph(data, edges="edges")

    assert_same(read, described(tree, msgspec.to_builtins))
    assert read.nodes["b"]["started"] is None
    assert read.graph == {"root": "s", "turns": [[2.0, None]]}
    assert read.is_directed()
    assert not read.is_multigraph()


@given(trees())
def test_any_tree_makes_the_round_trip(tree: Tree) -> None:
    linked = nx.node_link_graph(json.loads(tree.to_json()), edges="edges")
    assert_same(linked, described(tree, msgspec.to_builtins))
    marked = nx.read_graphml(io.BytesIO(tree.to_graphml().encode()))
    assert_same(marked, described(tree, flat))


@given(st.text())
def test_any_words_make_the_round_trip_in_json_and_are_well_formed_in_xml(words: str) -> None:
    tree = saying(words)
    assert json.loads(tree.to_json())["nodes"][0]["goal"] == words
    ET.fromstring(tree.to_graphml())
    ET.fromstring(tree.to_svg())
    assert tree._repr_svg_() == tree.to_svg()


@pytest.mark.parametrize("words", HOSTILE)
def test_an_svg_escapes_the_words_of_agents(words: str) -> None:
    """One root, no script, no element that we did not draw, no control character."""
    svg = saying(words).to_svg()
    root = ET.fromstring(svg)
    names = {element.tag.rpartition("}")[2] for element in root.iter()}

    assert names == {"svg", "title", "style", "rect", "path", "text"}
    assert not CONTROLS.search(svg)
    assert all("on" not in name[:2] for it in root.iter() for name in it.attrib)
    assert "prefers-color-scheme:dark" in svg


@pytest.mark.parametrize("words", HOSTILE)
def test_dot_quotes_the_words_of_agents(words: str) -> None:
    lines = saying(words).to_dot().splitlines()
    outside = [re.sub(r'"(?:[^"\\]|\\.)*"', "", line) for line in lines[4:]]

    assert outside == [
        "  n0 [label=, color=];",
        "  n1 [label=, color=];",
        "  n0 -> n1;",
        "  n2 [label=];",
        "  n0 -> n2 [style=dashed];",
        "  n1 -> n2 [style=bold, constraint=false];",
        "}",
    ]
    assert not CONTROLS.search("".join(lines))


@pytest.mark.parametrize("words", HOSTILE)
def test_mermaid_keeps_the_words_of_agents_in_labels(words: str) -> None:
    lines = saying(words).to_mermaid().splitlines()
    outside = [re.sub(r'\["[^"<>{}|`\\]*(<br/>[^"<>{}|`\\]*)*"\]', "", it) for it in lines]

    assert [it.partition(":::")[0] for it in outside if "classDef" not in it] == [
        "flowchart LR",
        "  n0",
        "  n1",
        "  n0 --> n1",
        "  n2",
        "  n0 -.-> n2",
        "  n1 ==> n2",
    ]


@pytest.mark.parametrize("words", HOSTILE)
def test_no_export_holds_control_characters_of_a_name(words: str) -> None:
    """A journal of a stranger may name agents and runs as it likes."""
    tree = Tree(TaskId(words))
    name = words.replace("/", "")
    add_task(
        tree,
        TaskId(words),
        parent=None,
        agent=name,
        path=f"/{name}",
        mode=Mode.ROOT,
        at=1.5,
        goal="x",
    )
    exports = [tree.to_text(), tree.to_text(rows=1), tree.to_dot(), tree.to_svg()]
    exports += [tree.to_mermaid(), tree.to_json(), tree.to_graphml(), tree.to_trace()]

    for export in exports:
        assert not CONTROLS.search(export)
    chart, _, _ = exports[4].partition("\n  classDef")
    assert re.fullmatch(r'flowchart LR\n  n0\["[^"<>\n\\]*(<br/>x)?"\](:::\w+)?', chart)


def test_charts_of_large_trees_are_folded_with_a_note() -> None:
    """No viewer draws thousands of boxes."""
    tree = wide(5_000)
    said = "tasks are shown; the rest is folded"

    for chart in (tree.to_mermaid(), tree.to_dot(), tree.to_svg(), tree.to_text(rows=30)):
        assert said in chart
        assert len(chart) < 60_000
    boxes, arrows, needs = 9, 8, 1
    lines = tree.to_mermaid(rows=9).splitlines()
    classes = 2
    assert len(lines) == 1 + boxes + arrows + needs + 1 + classes
    assert "coder ×5,000" in tree.to_mermaid()
    assert "… 4,996 more" in tree.to_mermaid()


def test_text_folds_only_when_asked_to() -> None:
    tree = wide(20)

    assert len(tree.to_text().splitlines()) == 23
    assert tree.to_text(rows=4).splitlines() == [
        "editor        ◐ running                   3 tok  ≥ $0  x",
        "├─ helper[1]  ✗ failed   joined    0.8 s  3 tok  ≥ $0  x",
        "├─ helper[2]  · queued   detached         0 tok    $0  x",
        "└─ coder ×20                              0 tok    $0  ·20",
        "3 of 23 tasks are shown; the rest is folded",
    ]


@pytest.mark.parametrize("words", HOSTILE)
def test_a_trace_holds_the_words_of_agents_as_plain_values(words: str) -> None:
    trace = json.loads(saying(words).to_trace())

    assert trace["otherData"] == {"run": "s", "tasks": 3, "never started": 1}
    assert not CONTROLS.search(json.dumps(trace, ensure_ascii=False))
    phases = [event["ph"] for event in trace["traceEvents"]]
    assert phases == ["M", "M", "M", "X", "X", "i"]


def test_an_arrow_leads_to_a_child_on_another_lane() -> None:
    tree = saying("x")
    tree.end(TaskId("a"), 9.0, "")
    tree.start(TaskId("b"), 4.0)
    tree.end(TaskId("b"), 5.0, "")
    events = json.loads(tree.to_trace(now=10.0))["traceEvents"]
    flows = [it for it in events if it["ph"] in "sf"]

    assert [(it["ph"], it["tid"], it["name"], it["ts"]) for it in flows] == [
        ("s", 1, "delegates", 1_500_000),
        ("f", 2, "delegates", 2_500_000),
        ("s", 1, "needs", 7_499_999),
        ("f", 2, "needs", 2_500_000),
    ]


@given(trees(most=200))
def test_slices_on_a_lane_of_a_trace_overlap_only_by_nesting(tree: Tree) -> None:
    """Viewers draw other overlaps wrongly, or not at all."""
    now = last_moment(tree, tree)
    slices = pack_lanes(tree, now=now)
    assert {it.task for it in slices} == {task for task in tree if tree[task].started is not None}
    for lane in {it.lane for it in slices}:
        on_it = [it for it in slices if it.lane == lane]
        for one in on_it:
            for two in on_it:
                apart = one.end <= two.begin or two.end <= one.begin
                one_in_two = two.begin <= one.begin and one.end <= two.end
                two_in_one = one.begin <= two.begin and two.end <= one.end
                assert apart or one_in_two or two_in_one
    events = json.loads(tree.to_trace())["traceEvents"]
    starts = {it["id"]: it for it in events if it["ph"] == "s"}
    ends = {it["id"]: it for it in events if it["ph"] == "f"}
    assert starts.keys() == ends.keys()


def test_a_picture_has_an_arrow_for_each_need_in_a_lane_of_its_own() -> None:
    tree = Tree(ROOT)
    add_task(tree, ROOT, parent=None, agent="editor", path="/editor", mode=Mode.ROOT, at=0)
    for name, needs in (("a", ""), ("b", "a"), ("c", "ab"), ("d", "c")):
        add_task(
            tree,
            TaskId(name),
            parent=ROOT,
            agent="coder",
            path=f"/editor/{name}",
            mode=Mode.JOINED,
            at=1,
            needs=[TaskId(it) for it in needs],
        )

    arrows = re.findall(r'<path class="needs" d="M[\d.]+ ([\d.]+)H([\d.]+)V([\d.]+)', tree.to_svg())

    rows = {51.0 + 22 * at: name for at, name in enumerate("abcd")}
    assert [(rows[float(a)], rows[float(b)]) for a, _, b in arrows] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
        ("c", "d"),
    ]
    lanes = [x for _, x, _ in arrows]
    assert lanes[0] != lanes[1] != lanes[2] != lanes[0]
