"""An answer is checked against a schema that a model wrote, and neither of them can harm us."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator.agents import DefinitionError
from orchestrator.agents.output.json_schema import MAX_OBJECTS, require_schema, schema_problems

FINDINGS = {
    "type": "object",
    "properties": {"findings": {"type": "array", "items": {"$ref": "#/$defs/finding"}}},
    "required": ["findings"],
    "$defs": {
        "finding": {
            "type": "object",
            "properties": {"title": {"type": "string"}, "a/b~c": {"minimum": 1}},
        }
    },
}
TREE = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "name": {"const": 1}}}


def twice_each(keyword: str, levels: int) -> dict[str, Any]:
    """Return a schema of which each level is visited twice as often as the one above."""
    parts: dict[str, Any] = {
        str(level): {keyword: [{"$ref": f"#/$defs/{level + 1}"}] * 2} for level in range(levels)
    }
    return {"$ref": "#/$defs/0", "$defs": {**parts, str(levels): {"type": "string"}}}


def chain(length: int, end: dict[str, Any]) -> dict[str, Any]:
    parts = {str(at): {"$ref": f"#/{at + 1}"} for at in range(length)}
    return {**parts, str(length): end, "$ref": "#/0"}


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    "text", ['{"findings": []}', ' {"findings": [{"title": "x"}], "more": 1}\n']
)
def test_an_answer_that_fits_has_no_problems(text: str) -> None:
    require_schema(FINDINGS)

    assert schema_problems(FINDINGS, text) == ()


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("[]", ['/: [] is not of type "object"']),
        ("{}", ['/: "findings" is a required property']),
        ('{"findings": [{"title": 5}]}', ['/findings/0/title: 5 is not of type "string"']),
        (
            '{"findings": [{}, {"title": null, "a/b~c": 0}]}',
            [
                "/findings/1/a~1b~0c: 0 is less than the minimum of 1",
                '/findings/1/title: null is not of type "string"',
            ],
        ),
    ],
)
def test_a_problem_names_its_place_in_the_answer(text: str, problems: list[str]) -> None:
    assert sorted(schema_problems(FINDINGS, text)) == problems


@pytest.mark.parametrize(
    "text", ["", "Here it is.", '{"a": ', "```json\n{}\n```", "{} {}", "NaN", '"\ud800"']
)
def test_an_answer_that_is_not_json_has_one_problem(text: str) -> None:
    (problem,) = schema_problems({}, text)

    assert problem.startswith("it is not JSON: ")


def test_ten_of_many_problems_are_listed_and_the_others_counted() -> None:
    schema = {"items": {"type": "string"}}

    assert len(schema_problems(schema, json.dumps([1] * 10))) == 10
    problems = schema_problems(schema, json.dumps([1] * 35))

    assert problems[9:] == ('/9: 1 is not of type "string"', "and 25 more")


def test_a_problem_is_one_line_that_is_not_long() -> None:
    schema = {"additionalProperties": {"pattern": "^\n$"}}

    (problem,) = schema_problems(schema, json.dumps({"a\nb\x1b": "x" * 10_000}))

    assert problem.isprintable()
    assert problem.startswith('/a\\nb\\x1b: "xxx')
    assert problem.endswith('does not match "^\\n$"')
    assert len(problem) < 400


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ([], "a JSON Schema is an object, not list"),
        (True, "a JSON Schema is an object, not bool"),
        ({"type": "strin"}, '/type: "strin" is not valid under any'),
        ({"minLength": "a"}, '/minLength: "a" is not of type "integer"'),
        ({"properties": {"a": {"required": 1}}}, "/properties/a/required: 1 is not"),
        ({"$ref": "#/$defs/gone"}, "Pointer '/$defs/gone' does not exist"),
        ({"dependencies": {"a": {"$ref": "#/b"}}}, "Pointer '/b' does not exist"),
        ({"$ref": "urn:" + "x" * 10_000}, "it refers to 'urn:xxx"),
        ({"$schema": "http://127.0.0.1:9/mine"}, "Unknown meta-schema"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "it is of draft 4"),
        ({"default": object()}, "it is not JSON"),
        ({"pattern": "("}, '/pattern: "(" is not a "regex"'),
        ({"pattern": "(?=a)b"}, "without look-around"),
        ({"pattern": "((a{999}){999}){999}"}, "regular expressions here are small"),
        ({"description": "x" * 100_000}, "used: it has 100018 characters, and 100000 are"),
        ({"enum": [{}] * MAX_OBJECTS}, "it has 2001 objects, and 2000 are allowed"),
        ({"$dynamicRef": "#x", "$dynamicAnchor": "x"}, "it uses $dynamicRef"),
        ({"$ref": "#x", "$defs": {"x": {"$anchor": "x"}}}, "it refers to '#x'"),
        ({"$defs": {"a": {"$id": "urn:a"}}}, "a part of it has an $id"),
    ],
)
def test_an_invalid_schema_is_refused_with_the_reason(schema: Any, why: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        require_schema(schema)

    assert str(caught.value).startswith("the schema cannot be used: ")
    assert why in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "1"),
        ({"$id": "https://example.org/mine", "type": "integer"}, "1"),
        ({"properties": {"$ref": {"type": "string"}}}, '{"$ref": "x"}'),
        ({"$ref": "#/x%20y/a~1b", "x y": {"a/b": {"type": "integer"}}}, "1"),
        ({"$ref": "#/anyOf/1", "anyOf": [False, {"type": "integer"}]}, "1"),
        ({"items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}}, "[1, [2, [3]]]"),
        ({"prefixItems": [True], "items": {"type": "null"}}, "[1, null]"),
        (TREE, '{"left": {"right": {"name": 1}}}'),
        ({"propertyNames": {"maxLength": 2}, "patternProperties": {"a": {}}}, "{}"),
        ({"patternProperties": {"^a": {"type": "null"}}}, '{"ab": null}'),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, '{"a": 1, "b": 2}'),
    ],
)
def test_a_schema_may_use_these_other_keywords(schema: dict[str, Any], text: str) -> None:
    require_schema(schema)

    assert schema_problems(schema, text) == ()


@pytest.mark.realtime
async def test_checking_a_schema_fetches_no_url() -> None:
    asked: list[bytes] = []

    async def note(stream: trio.SocketStream) -> None:
        asked.append(await stream.receive_some())
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, note, 0, host="127.0.0.1"))
        there = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/a"
        hostile: list[dict[str, Any]] = [
            {"$ref": there},
            {"$ref": f"{there}#/b"},
            {"$schema": there},
            {"$id": there, "$ref": "b"},
            {"$dynamicRef": there},
            {"properties": {"a": {"anyOf": [{"$ref": there}]}}},
            {"properties": {"default": {"$ref": there}}},
            {"$ref": "file:///etc/passwd"},
            {"$ref": "//127.0.0.1/a"},
        ]
        checks: list[Callable[[dict[str, Any]], object]] = [
            require_schema,
            partial(schema_problems, text='{"a": {}}'),
        ]
        for schema, check in itertools.product(hostile, checks):
            # In a thread, so that a request would arrive.
            with pytest.raises(DefinitionError, match="cannot be used"):
                await trio.to_thread.run_sync(check, schema)
        # A request that is made on purpose arrives, and it is the only one.
        async with await trio.testing.open_stream_to_socket_listener(listeners[0]) as ours:
            await ours.send_all(b"ours")
            assert await ours.receive_some() == b""
        nursery.cancel_scope.cancel()

    assert asked == [b"ours"]


def test_a_regular_expression_never_takes_long() -> None:
    """The engine does not backtrack: its time grows with the text only."""
    schema = {"pattern": "(a+)+$"}

    (problem,) = schema_problems(schema, json.dumps("a" * 40 + "!"))
    assert problem.endswith('does not match "(a+)+$"')
    (problem,) = schema_problems(schema, json.dumps("a" * 1_000_000 + "!"))
    assert problem.endswith('does not match "(a+)+$"')


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}},
        {"if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"}},
    ],
)
def test_a_schema_that_refers_to_itself_comes_to_an_end(schema: dict[str, Any]) -> None:
    require_schema(schema)

    assert schema_problems(schema, '{"a": [1]}') == ()


@pytest.mark.parametrize("levels", [101, 300, 100_000])
def test_an_answer_that_is_nested_too_deep_has_one_problem(levels: int) -> None:
    schema = {"items": {"$ref": "#"}}

    assert schema_problems(schema, nested(100)) == ()
    assert schema_problems(schema, nested(levels)) == ("it is nested more than 100 levels deep",)


@pytest.mark.parametrize("levels", [101, 300, 5_000, 50_000])
def test_a_schema_that_is_nested_too_deep_is_refused(levels: int) -> None:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}

    with pytest.raises(DefinitionError, match="nested more than 100 levels"):
        require_schema(schema)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_doubles_with_every_level_is_refused(keyword: str) -> None:
    """Otherwise 2,000 characters would keep us for years."""
    require_schema(twice_each(keyword, 8))
    for levels in (20, 60):
        schema = twice_each(keyword, levels)
        with pytest.raises(DefinitionError, match="too often or too deep"):
            require_schema(schema)
        (problem,) = schema_problems(schema, "5")
        assert problem.startswith("it cannot be checked in reasonable time")


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_an_answer_that_doubles_with_every_level_is_not_checked(keyword: str) -> None:
    """The schema is harmless by itself."""
    schema = {"type": "array", "items": {keyword: [{"$ref": "#"}, {"$ref": "#"}]}}

    require_schema(schema)
    (problem,) = schema_problems(schema, nested(60))
    assert problem.startswith("it cannot be checked in reasonable time")


def test_nested_unevaluated_properties_are_too_slow_to_check() -> None:
    schema: dict[str, Any] = {"properties": {"a": True}}
    for _ in range(40):
        schema = {"allOf": [schema], "unevaluatedProperties": False}

    with pytest.raises(DefinitionError, match="too often or too deep"):
        require_schema(schema)
    (problem,) = schema_problems(schema, '{"a": 1}')
    assert problem.startswith("it cannot be checked in reasonable time")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (chain(1_900, {"type": "string"}), "5"),
        (chain(1_900, {"items": {"$ref": "#"}}), nested(100)),
        (chain(400, {"items": {"$ref": "#"}}), nested(100)),
        (
            {"items": {"enum": [{"a": n} for n in range(1_900)]}},
            json.dumps([{"a": 1_899}] * 100_000),
        ),
        ({"propertyNames": {"$ref": "#"}}, '{"a": 1}'),
    ],
)
def test_no_schema_crashes_the_process(schema: dict[str, Any], text: str) -> None:
    """The stack has half a megabyte, like a thread on some systems."""
    code = (
        "import sys, threading, json\n"
        "from orchestrator.agents.output.json_schema import schema_problems\n"
        "threading.stack_size(512 * 1024)\n"
        "given = json.load(sys.stdin)\n"
        "check = threading.Thread(target=lambda: print(schema_problems(*given)))\n"
        "check.start(); check.join()"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([schema, text]),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.startswith("("), done.stderr


def test_a_long_answer_is_checked_all_the_same() -> None:
    rows = [{"title": "x", "n": number} for number in range(20_000)]

    assert schema_problems(FINDINGS, json.dumps({"findings": rows})) == ()
    rows[-1]["title"] = 5
    assert schema_problems(FINDINGS, json.dumps({"findings": rows})) == (
        '/findings/19999/title: 5 is not of type "string"',
    )


@pytest.mark.parametrize("use", [require_schema, lambda schema: schema_problems(schema, "1")])
def test_a_fault_in_the_library_is_an_error_of_ours(
    use: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library raises no `Exception`, so the fault would end more than the task."""

    class PanicException(BaseException):
        pass

    def fail(*_args: object, **_options: object) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr("jsonschema_rs.validator_for", fail)

    with pytest.raises(DefinitionError, match="failed: index out of bounds"):
        use({})
