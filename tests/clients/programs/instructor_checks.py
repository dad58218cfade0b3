"""Instructor: typed answers in each of its modes."""

import json
from collections.abc import Iterable
from typing import Any

import instructor
import openai
from check_kit import KEY, PIXEL, URL, check, contains, equal, main, raises
from instructor.core.exceptions import InstructorRetryException
from pydantic import BaseModel, field_validator


class Weather(BaseModel):
    """How it is outside."""

    city: str
    degrees: int


class Shown(BaseModel):
    """The fields for the model."""

    city: str


FITTING = {"city": "Lima", "degrees": 18}
USER: Any = [{"role": "user", "content": "hello"}]
CHAT_MODES = ("TOOLS", "TOOLS_STRICT", "JSON", "JSON_SCHEMA", "MD_JSON", "JSON_O1")
PARALLEL = "PARALLEL_TOOLS"


def client(mode: str = "TOOLS", **more: Any) -> Any:
    own = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=20)
    return instructor.from_openai(own, mode=instructor.Mode[mode], **more)


def create(mode: str = "TOOLS", kind: Any = Weather, **more: Any) -> Any:
    given = {"model": "report", "messages": USER, "max_retries": 0, **more}
    return client(mode).chat.completions.create(response_model=kind, **given)


@check("plain")
def without_a_type() -> None:
    answer = create(kind=None)
    equal(answer.choices[0].message.content, "You said: hello")


@check("structured output")
def each_mode_of_chat_completions() -> None:
    for mode in CHAT_MODES:
        equal(create(mode).model_dump(), FITTING)


@check("structured output")
def the_modes_of_responses() -> None:
    for mode in ("RESPONSES_TOOLS", "RESPONSES_TOOLS_WITH_INBUILT_TOOLS"):
        equal(create(mode).model_dump(), FITTING)


@check("structured output")
def lists_and_iterables() -> None:
    equal([it.model_dump() for it in create(kind=list[Weather])], [FITTING])
    (one,) = client().chat.completions.create_iterable(
        response_model=Weather, model="report", messages=USER
    )
    equal(one.model_dump(), FITTING)


@check("structured output")
def an_answer_that_a_validator_refuses_is_asked_for_again() -> None:
    class Strict(BaseModel):
        city: str

        @field_validator("city")
        @classmethod
        def never(cls, value: str) -> str:
            raise ValueError("no such city")

    with raises(InstructorRetryException) as error:
        create(kind=Strict, max_retries=1)
    assert error.value.n_attempts > 1


@check("stream")
def partial_objects() -> None:
    for mode in ("TOOLS", "JSON_SCHEMA"):
        *_, last = client(mode).chat.completions.create_partial(
            response_model=Weather, model="report", messages=USER
        )
        equal((last.city, last.degrees), ("Lima", 18))


@check("usage")
def usage() -> None:
    given = {"model": "report", "messages": USER, "response_model": Weather}
    _, raw = client().chat.completions.create_with_completion(**given)
    equal(raw.usage.prompt_tokens, 10)


@check("parallel calls")
def parallel_tools() -> None:
    found = create(
        PARALLEL, Iterable[Weather], messages=[{"role": "user", "content": "call Weather twice"}]
    )
    equal([it.model_dump() for it in found], [FITTING, FITTING])


@check("settings")
def a_limit_that_is_too_small_is_said() -> None:
    with raises(InstructorRetryException, instructor.core.IncompleteOutputException):
        create("JSON_SCHEMA", max_tokens=2)


@check("images and files")
def an_image() -> None:
    image = instructor.Image.from_base64(f"data:image/png;base64,{PIXEL}")
    messages = [{"role": "user", "content": ["report", image]}]
    answer = create(kind=None, messages=messages)
    shown = json.loads(answer.choices[0].message.content)["messages"][0]["parts"]
    equal([part["type"] for part in shown], ["image/png"])


@check("several turns")
def history_reaches_the_model() -> None:
    said = {"role": "assistant", "content": "Hi."}
    report = {"role": "user", "content": "report"}
    answer = create(kind=None, messages=[*USER, said, report])
    equal(len(json.loads(answer.choices[0].message.content)["messages"]), 3)


@check("errors")
def the_code_is_said() -> None:
    for name, code in (
        ("limited", "rate_limit_exceeded"),
        ("long", "context_length_exceeded"),
        ("nobody", "model_not_found"),
    ):
        with raises(InstructorRetryException) as error:
            create(model=name)
        contains(str(error.value), code)


@check("idempotency")
def one_key_is_one_run() -> None:
    def count(**more: Any) -> Any:
        answer = create(kind=None, model="count", **more)
        return answer.choices[0].message.content

    headers = {"Idempotency-Key": f"instructor {count()}"}
    first = count(extra_headers=headers)
    equal(count(extra_headers=headers), first)
    assert count() != first


main("instructor", "openai")
