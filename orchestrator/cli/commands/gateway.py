"""`orchestrator gateway`: reach the agent of a file from chat platforms, until a signal comes."""

import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from cyclopts import Parameter

from orchestrator.agents import DefinitionError
from orchestrator.agents.secret_references import resolve_references
from orchestrator.cli.agent_file import load_agent_and_jobs
from orchestrator.cli.errors import CommandError
from orchestrator.cli.job_queries import ScheduleJournalOption, schedule_journal
from orchestrator.cli.job_targets import targets_for
from orchestrator.cli.options import AcceptChangesOption, on_change_of
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.trust import TrustOption
from orchestrator.composition import open_orchestrator
from orchestrator.delegation import printable
from orchestrator.ports.control import open_control
from orchestrator.ports.errors import JournalInUseError
from orchestrator.ports.files import DISCORD_SUFFIX
from orchestrator.ports.sessions import Orchestrator
from orchestrator.ports.settings import Machine

if TYPE_CHECKING:
    from orchestrator.products.chat import Gateway, GatewaySettings, Platform

INSTALL: Final = "pip install 'delegation-orchestrator[chat]'"
TELEGRAM_TOKEN: Final = "TELEGRAM_BOT_TOKEN"  # noqa: S105 (the name of a variable)
TELEGRAM_API: Final = "TELEGRAM_API_URL"
"""The variable with the address of another Bot API server: your own, or a stand-in for tests."""
TELEGRAM_SECRET: Final = "TELEGRAM_WEBHOOK_SECRET"  # noqa: S105 (the name of a variable)
SLACK_TOKEN: Final = "SLACK_BOT_TOKEN"  # noqa: S105 (the name of a variable)
SLACK_APP_TOKEN: Final = "SLACK_APP_TOKEN"  # noqa: S105 (the name of a variable)
SLACK_SECRET: Final = "SLACK_SIGNING_SECRET"  # noqa: S105 (the name of a variable)
SLACK_API: Final = "SLACK_API_URL"
"""The variable with another address of Slack's API: GovSlack, or a stand-in for tests."""
DISCORD_TOKEN: Final = "DISCORD_BOT_TOKEN"  # noqa: S105 (the name of a variable)
DISCORD_API: Final = "DISCORD_API_URL"
"""The variable with another address of Discord's API: a stand-in for tests."""


def gateway(
    file: str,
    /,
    *,
    telegram: bool = False,
    telegram_webhook: str | None = None,
    slack: bool = False,
    slack_events: bool = False,
    discord: bool = False,
    settings: Path | None = None,
    allow: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    pair: bool = False,
    workspace: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8643,
    insecure: bool = False,
    journal: ScheduleJournalOption = None,
    sandbox: SandboxOption = None,
    trust: TrustOption = False,
    accept_changes: AcceptChangesOption = False,
) -> int:
    """Let people talk to the agent of a file on Telegram, Slack or Discord.

    A person may talk only if they are allowed, or show a pairing code. Tokens come from the
    environment: TELEGRAM_BOT_TOKEN; SLACK_BOT_TOKEN, and SLACK_APP_TOKEN or SLACK_SIGNING_SECRET;
    DISCORD_BOT_TOKEN. Meanwhile the jobs of the file start by the clock, and may deliver to chats.
    Ctrl-C or SIGTERM ends it, and the next start continues unfinished work.

    Args:
        file: The file that defines the agent: FILE or FILE:NAME.
        telegram: Talk on Telegram: this process polls for new messages (long polling).
        telegram_webhook: Talk on Telegram: it calls this https address, which ends with /telegram
            and leads to --host and --port.
        slack: Talk on Slack: this process connects to it (Socket Mode).
        slack_events: Talk on Slack: it calls an https address of yours (Events API), which ends
            with /slack and leads to --host and --port.
        discord: Talk on Discord: this process connects to it.
        settings: A file that says who may talk, how much, and in which personalities.
        allow: A person who may talk, as telegram:USER_ID, slack:USER_ID or discord:USER_ID; repeat
            it for several.
        pair: Print a code: the first person who sends /pair CODE within an hour may talk, too.
        workspace: The folder that tools work in, and where files of people are stored; by default
            this one.
        host: The address to listen at for calls of platforms.
        port: The port to listen at; 0 takes a free one and prints it.
        insecure: Let other machines connect without TLS: a proxy in front of it speaks TLS.
    """
    require_extra()
    values = resolve_references(os.environ)
    environ = {**os.environ, **values}
    wanted: list[AbstractAsyncContextManager[Platform]] = []
    if telegram or telegram_webhook is not None:
        wanted.append(telegram_platform(environ, telegram_webhook))
    if slack or slack_events:
        if slack and slack_events:
            raise CommandError(
                "an app of Slack has either Socket Mode (--slack) or request URLs"
                " (--slack-events): say one"
            )
        wanted.append(slack_platform(environ, is_called=slack_events))
    path = schedule_journal(journal)
    if discord:
        wanted.append(discord_platform(environ, path))
    if not wanted:
        raise CommandError("say where people are: --telegram, --slack or --discord")
    # The file may run any code, so it is loaded before the event loop starts.
    agent, jobs = load_agent_and_jobs(file, trust=trust)
    webhooks = targets_for(jobs, path.parent, environ)
    rules = read_rules(settings, allow)
    if not (rules.allow or pair):
        print(
            "no person may talk yet: give --allow PLATFORM:USER_ID, a file of --settings, or"
            " --pair, unless an earlier process has paired some",
            file=sys.stderr,
        )

    async def work(stop: Stop) -> int:
        from orchestrator.products.chat import open_gateway

        choice = await choose_sandbox(sandbox, [agent, *(it.agent for it in jobs)])
        async with (
            open_platforms(wanted) as platforms,
            open_orchestrator(
                path,
                machine=Machine(
                    sandbox=choice,
                    workspace=workspace,
                    secrets=[*values, *webhooks.secrets],
                    environ={**environ, **webhooks.secrets},
                ),
                on_change=on_change_of(accept_changes=accept_changes),
            ) as orchestrator,
            webhooks.open() as targets,
            open_gateway(
                orchestrator,
                agent,
                platforms,
                jobs=jobs,
                targets=targets,
                settings=rules,
                workspace=workspace,
                report=reporter(orchestrator),
            ) as opened,
            open_control(orchestrator, path),
            open_listener(opened, orchestrator, host, port, is_insecure=insecure),
        ):
            stop.set_orchestrator(orchestrator)
            names = ", ".join(it.name for it in platforms)
            print(
                f"{agent.name} is reached from {names}, as process {os.getpid()}", file=sys.stderr
            )
            if pair:
                code = opened.pairing.new_code()
                signs = sorted({it.command_prefix for it in platforms})
                ways = " or ".join(f"{sign}pair {code}" for sign in signs)
                print(f"who sends {ways} within an hour may talk", file=sys.stderr)
            await stop.wait_requested()
            await stop.wait_drained()
        return 0

    try:
        return run_stoppable(work)
    except JournalInUseError as exc:
        raise CommandError(
            f"{exc.writer} writes {path} already: one gateway or schedule has it at a time"
        ) from exc


def require_extra() -> None:
    """Raise unless the packages that chat platforms need are installed."""
    if any(
        find_spec(it) is None for it in ("httpx2", "markdown_it", "trio_websocket", "starlette")
    ):
        raise CommandError(f"chat platforms need an extra: {INSTALL}")


def read_rules(file: Path | None, allow: Sequence[str]) -> "GatewaySettings":
    """Return the settings of a file, with the people that options name."""
    from orchestrator.products.chat import GatewaySettings, read_settings

    for user in allow:
        if not all(user.partition(":")):
            raise CommandError(f"--allow {user} is not a person: write PLATFORM:USER_ID")
    found = GatewaySettings() if file is None else read_settings(file)
    return msgspec.structs.replace(found, allow=(*found.allow, *allow))


def secret_of(environ: Mapping[str, str], name: str, advice: str) -> str:
    """Return a secret of the environment, or raise with advice on where to get it."""
    if value := environ.get(name, "").strip():
        return value
    raise CommandError(f"{name} is not set: {advice}")


def slack_platform(
    environ: Mapping[str, str], *, is_called: bool
) -> "AbstractAsyncContextManager[Platform]":
    """Return the connection to Slack, not open yet; with `is_called`, Slack calls us."""
    from orchestrator.products.chat.slack import open_slack
    from orchestrator.products.chat.slack.api import API_URL

    token = secret_of(environ, SLACK_TOKEN, "the app's page at api.slack.com has it, below OAuth")
    require_prefix(token, "xoxb-", SLACK_TOKEN, "the token of a bot")
    app_token = signing_secret = ""
    if is_called:
        signing_secret = secret_of(environ, SLACK_SECRET, "the app's page at api.slack.com has it")
    else:
        app_token = secret_of(
            environ,
            SLACK_APP_TOKEN,
            "make one on the app's page at api.slack.com, with the scope connections:write",
        )
        require_prefix(app_token, "xapp-", SLACK_APP_TOKEN, "the token of an app")
    url = environ.get(SLACK_API) or API_URL
    return open_slack(token, app_token=app_token, signing_secret=signing_secret, url=url)


def require_prefix(secret: str, prefix: str, name: str, what: str) -> None:
    """Raise unless a secret is of the right kind: they are easily mixed up."""
    if not secret.startswith(prefix):
        raise CommandError(f"{name} is not {what}, which begins with {prefix}")


def telegram_platform(
    environ: Mapping[str, str], webhook_url: str | None
) -> "AbstractAsyncContextManager[Platform]":
    """Return the connection to Telegram, not open yet."""
    from orchestrator.products.chat.telegram import TelegramWebhook, open_telegram
    from orchestrator.products.chat.telegram.api import ADDRESS

    token = secret_of(environ, TELEGRAM_TOKEN, "@BotFather gives one to each bot, on Telegram")
    webhook = None
    if webhook_url is not None:
        if not webhook_url.startswith("https://"):
            raise CommandError("--telegram-webhook is not an https:// address")
        secret = environ.get(TELEGRAM_SECRET) or token_urlsafe(32)
        try:
            webhook = TelegramWebhook(webhook_url, secret)
        except DefinitionError as exc:
            raise CommandError(f"{TELEGRAM_SECRET}: {exc}") from exc
    address = environ.get(TELEGRAM_API) or ADDRESS
    return open_telegram(token, webhook=webhook, address=address)


def discord_platform(
    environ: Mapping[str, str], journal: Path
) -> "AbstractAsyncContextManager[Platform]":
    """Return the connection to Discord, not open yet."""
    from orchestrator.products.chat.discord import open_discord
    from orchestrator.products.chat.discord.api import API

    advice = "https://discord.com/developers/applications has one for each bot"
    token = secret_of(environ, DISCORD_TOKEN, advice)
    if re.fullmatch(r"[\w.+/=-]+", token, re.ASCII) is None:
        raise CommandError(f"{DISCORD_TOKEN} is not the token of a bot: {advice}")
    return open_discord(
        token,
        session_file=journal.with_name(f"{journal.name}{DISCORD_SUFFIX}"),
        url=environ.get(DISCORD_API) or API,
    )


@asynccontextmanager
async def open_platforms(
    wanted: "Sequence[AbstractAsyncContextManager[Platform]]",
) -> "AsyncGenerator[list[Platform]]":
    """Connect to all platforms, as long as the block lasts."""
    async with AsyncExitStack() as opened:
        yield [await opened.enter_async_context(it) for it in wanted]


@asynccontextmanager
async def open_listener(
    gateway: "Gateway", orchestrator: Orchestrator, host: str, port: int, *, is_insecure: bool
) -> AsyncGenerator[None]:
    """Listen for the calls of platforms, if any platform calls."""
    if not (webhooks := gateway.webhooks):
        yield
        return
    from orchestrator.products.server.chat_webhooks import open_chat_webhooks
    from orchestrator.products.server.transport.listener import Listening

    listening = Listening(host=host, port=port, is_insecure=is_insecure)
    redactor = orchestrator.read.redactor
    async with open_chat_webhooks(webhooks, listening, redactor) as address:
        paths = ", ".join(sorted(webhooks))
        print(f"platforms are heard at {address} ({paths})", file=sys.stderr)
        yield


def reporter(orchestrator: Orchestrator) -> Callable[[str], None]:
    """Return a function that tells the operator about events, without secrets."""

    def report(line: str) -> None:
        shown = printable(orchestrator.read.redactor.redact(line))
        print(f"orchestrator: {shown}", file=sys.stderr, flush=True)

    return report
