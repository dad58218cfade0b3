"""`llm` as its users have it: the command line, with a model of `extra-openai-models.yaml`."""

import json
import os
import subprocess
import sys
import tempfile
from base64 import b64decode
from pathlib import Path

from check_kit import KEY, PIXEL, URL, check, contains, equal, main

FOLDER = Path(tempfile.mkdtemp(prefix="llm-"))
MODEL = """
- model_id: {name}
  model_name: {name}
  api_base: "{url}/v1"
  api_key_name: served
  supports_tools: true
  supports_schema: true
  vision: true
"""
(FOLDER / "extra-openai-models.yaml").write_text(
    "".join(MODEL.format(name=name, url=URL) for name in ("report", "limited", "count"))
    + MODEL.format(name="plain", url=URL)
    .replace("model_name: plain", "model_name: report")
    .rstrip()
    + "\n  completion: true\n"
)
(FOLDER / "keys.json").write_text(json.dumps({"served": KEY}))
(FOLDER / "tools.py").write_text(
    'def weather(city: str) -> str:\n    """Say how it is."""\n    return "foggy"\n'
)
(FOLDER / "a.png").write_bytes(b64decode(PIXEL))


def llm(*arguments: str, fails: bool = False) -> str:
    """Run the command, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "llm", *arguments],
        env={**os.environ, "LLM_USER_PATH": str(FOLDER)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if fails == (done.returncode == 0):
        raise AssertionError(f"exit {done.returncode}: {done.stdout}{done.stderr}")
    return (done.stderr if fails else done.stdout).strip()


@check("plain")
def a_prompt() -> None:
    equal(llm("-m", "report", "hello", "--no-stream"), "You said: hello")


@check("stream")
def a_prompt_that_streams() -> None:
    equal(llm("-m", "report", "one two three"), "You said: one two three")


@check("usage")
def usage() -> None:
    llm("-m", "report", "hello", "--no-stream")
    row = json.loads(llm("logs", "-n", "1", "--json"))[0]
    equal((row["input_tokens"], row["output_tokens"]), (10, 3))


@check("tools")
def a_function() -> None:
    answer = llm("-m", "report", "call weather", "--functions", str(FOLDER / "tools.py"))
    equal(answer, "The tools say: foggy.")


@check("parallel calls")
def two_calls_in_one_answer() -> None:
    tools = ("--functions", str(FOLDER / "tools.py"))
    answer = llm("-m", "report", "call weather twice", *tools, "--no-stream")
    equal(answer, "The tools say: foggy, foggy.")


@check("streamed calls")
def calls_in_a_stream() -> None:
    tools = ("--functions", str(FOLDER / "tools.py"))
    answer = llm("-m", "report", "call weather twice", *tools)
    equal(answer, "The tools say: foggy, foggy.")


@check("structured output")
def a_schema() -> None:
    for more in ((), ("--no-stream",)):
        answer = llm("-m", "report", "hello", "--schema", "city, degrees int", *more)
        equal(json.loads(answer), {"city": "Lima", "degrees": 18})
    answer = llm("-m", "report", "hello", "--schema-multi", "city, degrees int", "--no-stream")
    equal(json.loads(answer), {"items": [{"city": "Lima", "degrees": 18}]})


@check("structured output")
def a_json_object() -> None:
    equal(llm("-m", "report", "hello", "-o", "json_object", "true"), "{}")


@check("settings")
def options() -> None:
    given = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "presence_penalty": 0.1}
    options = [it for name, value in given.items() for it in ("-o", name, str(value))]
    equal(json.loads(llm("-m", "report", "report", *options))["settings"], given)
    equal(llm("-m", "report", "one two three", "-o", "max_tokens", "3"), "You said: one")
    equal(llm("-m", "report", "one two", "-o", "stop", "two"), "You said: one")


@check("images and files")
def an_attachment() -> None:
    answer = llm("-m", "report", "report", "-a", str(FOLDER / "a.png"))
    shown = json.loads(answer)["messages"][0]["parts"]
    equal([part["type"] for part in shown], ["image/png"])


@check("several turns")
def continued() -> None:
    llm("-m", "report", "call weather", "--functions", str(FOLDER / "tools.py"))
    shown = json.loads(llm("-c", "report"))["messages"]
    equal(shown[-1]["text"], "report")
    equal([it["role"] for it in shown][:2], ["user", "assistant"])


@check("completions")
def a_completion_model() -> None:
    equal(llm("-m", "plain", "hello", "--no-stream"), "You said: hello")


@check("errors")
def an_error_is_said() -> None:
    contains(llm("-m", "limited", "hi", fails=True), "too many requests")


main("llm", "openai")
