"""Options that several commands share, and the checks of their values."""

import mimetypes
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
from cyclopts import Parameter, default_name_transform

from orchestrator.agents import Agent, DefinitionError, Part, Pipeline
from orchestrator.agents.budget import BudgetAmounts
from orchestrator.backends import is_database, journals_at
from orchestrator.cli.errors import CommandError
from orchestrator.cli.terminal.style import Progress
from orchestrator.ports.execution import host_of, known_providers
from orchestrator.ports.files import JOURNAL_VARIABLE, PRIVATE_FILE, state_folder
from orchestrator.ports.journals import Journals
from orchestrator.ports.sessions import OnChange

JournalOption = Annotated[
    str | None,
    Parameter(
        # The address of a database has a password, which no other process is to see.
        env_var=JOURNAL_VARIABLE,
        help="The journal that records runs: a file, which one process writes at a time; a folder"
        " (runs/), where each process has its own journal; or a database (postgresql://)."
        " By default the user's state directory, or ORCHESTRATOR_HOME.",
    ),
]

ProgressOption = Annotated[
    Progress,
    Parameter(
        help="How to show progress: live in a terminal and plain lines elsewhere (auto), or the"
        " kind that you name. json writes only the facts of the journal to stdout, one per"
        " line."
    ),
]

ModelOption = Annotated[
    str | None,
    Parameter(
        help="The model of the agent that gets the goal, instead of its own: NAME, or 'NAME | NAME'"
        " to ask the second when the first fails. The agent keeps its settings, and its delegates"
        " keep the models that they name. In a folder of agents or a team.yaml without 'model:',"
        " delegates without a model use it, too. `orchestrator models` lists the names."
    ),
]

LanguageModelOption = Annotated[
    tuple[str, ...],
    Parameter(
        show_default=False,
        help="A model that a run may ask for instead of its agent's own, besides the models that"
        " the agents name; repeat it for several. `orchestrator models` lists the names.",
    ),
]

AttachOption = Annotated[
    tuple[Path, ...],
    Parameter(
        show_default=False, help="A file or an image to send with the goal; repeat it for several."
    ),
]

BrowserOption = Annotated[
    bool,
    # On by default, so only its opposite is of use.
    Parameter(
        name="",
        negative="--no-browser",
        show_default=False,
        help="Open no browser; the link is always printed.",
    ),
]


@attrs.frozen(kw_only=True)
class BlockAmounts(BudgetAmounts):
    """The arguments of `budget(...)` that a command takes."""

    shared: str | None = attrs.field(
        default=None,
        metadata={"help": "The name of a budget that all commands on the same journal share."},
    )
    every: Literal["day", "month"] | None = attrs.field(
        default=None, metadata={"help": "How often the shared budget starts again."}
    )
    zone: str | None = attrs.field(
        default=None,
        metadata={"help": "The time zone of its days and months, such as Europe/Vienna."},
    )

    def arguments(self) -> dict[str, Any]:
        return attrs.asdict(self, filter=lambda _, value: value is not None)


# One option for each kind: --budget-usd, --budget-tokens and so on.
SETS: Final = Path("evaluations")
"""The folder of the sets of evaluations, below the current one."""
_EACH_KIND: Final = Parameter(
    name="*", name_transform=lambda kind: f"budget-{default_name_transform(kind)}"
)
BudgetOption = Annotated[BudgetAmounts | None, _EACH_KIND]
BlockBudgetOption = Annotated[BlockAmounts | None, _EACH_KIND]

OutputOption = Annotated[Path | None, Parameter(name=["--output", "-o"])]

AcceptChangesOption = Annotated[
    bool,
    Parameter(
        negative="",
        show_default=False,
        help="Continue work that a crash interrupted, although the program or the version of its"
        " agent has changed; finished tasks may be repeated so.",
    ),
]


def on_change_of(*, accept_changes: bool) -> OnChange:
    """Return how work goes on whose program has changed since a crash."""
    return "accept" if accept_changes else "refuse"


JsonOption = Annotated[bool, Parameter(help="Print JSON.")]

AgentFile = Annotated[
    str,
    Parameter(help="The file that defines the agent: FILE, or FILE:NAME if it defines several."),
]

AnyAgentFile = Annotated[
    str,
    Parameter(
        help="The file that defines the agent: a Python file, a folder of agents (*.md), or a"
        " team.yaml; or FILE:NAME, if it defines several."
    ),
]

TeamFile = Annotated[
    str,
    Parameter(
        help="The file that defines the agents: a Python file, a folder of agents (*.md), or a"
        " team.yaml; FILE:NAME for one agent."
    ),
]

RunArgument = Annotated[
    str | None, Parameter(help="The id of the run, or its start; by default the newest run.")
]

RunOfPath = Annotated[
    str | None, Parameter(help="The run to look for a path in; by default the newest.")
]


def journals_of(option: str | None) -> Journals:
    """Return the journals of `--journal`, or the user's own."""
    return journals_at(
        option or f"{state_folder(os.environ)}{os.sep}",
        host=host_of(None, os.environ, spans_hosts=True).name,
    )


def with_model(agent: Agent[Any], model: str | None) -> Agent[Any]:
    """Return an agent with the model of `--model`, if one was given."""
    if model is None:
        return agent
    if isinstance(agent, Pipeline):
        raise CommandError(
            f"{agent.name} is a pipeline, which calls no model: --model needs an agent that does"
        )
    try:
        return attrs.evolve(agent, model=model)
    except DefinitionError as exc:
        raise CommandError(f"--model {model}: {exc}") from exc


def require_known_models(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of models, or refuse one of an unknown provider."""
    known = {*known_providers(os.environ), "local"}
    for name in names:
        for one in name.split("|"):
            provider, colon, model = one.strip().partition(":")
            if not (colon and model and provider in known):
                raise CommandError(
                    f"--language-model {name}: there is no such provider; names are such as"
                    " openai:gpt-5-mini, and `orchestrator models` lists them"
                )
    return names


def with_instructions(agent: Agent[Any], instructions: str | None) -> Agent[Any]:
    """Return an agent with additional instructions, if there are any."""
    if instructions is None:
        return agent
    if isinstance(agent, Pipeline) or not isinstance(agent.instructions, str):
        raise CommandError(
            f"--instructions: {agent.name} has no text that instructions could be added to"
        )
    texts = filter(None, (agent.instructions, instructions))
    return attrs.evolve(agent, instructions="\n\n".join(texts))


def parts_of(agent: Agent[Any], files: tuple[Path, ...]) -> list[Part]:
    """Return the files that are sent with the goal of an agent."""
    if files and isinstance(agent, Pipeline):
        raise CommandError(f"{agent.name} is a pipeline, which takes no files")
    return [_part_of(file) for file in files]


def _part_of(file: Path) -> Part:
    try:
        data = file.read_bytes()
        return Part(media_type_of(file.name, data), data=data, name=file.name)
    except OSError as exc:
        raise CommandError(f"--attach {file}: {exc.strerror or exc}") from exc
    except DefinitionError as exc:
        raise CommandError(f"--attach {file}: {exc}") from exc


def media_type_of(name: str, data: bytes) -> str:
    """Return the media type of a file: by its name, or plain text if it is text."""
    guessed, encoding = mimetypes.guess_type(name)
    if guessed is not None and encoding is None:
        return guessed
    try:
        data.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


def server_folder(journals: Journals) -> Path:
    """Return the folder of keys and secrets: beside the journals, or the user's for a database."""
    if journals.folder is not None:
        return journals.folder
    return state_folder(os.environ) if is_database(journals.address) else Path()


def require_writable(file: Path, journals: Journals) -> None:
    """Refuse an output file that cannot be written or is a journal, before any work is done."""
    if file.is_dir():
        raise CommandError(
            f"{file} is a directory; name a file with -o, such as {file / 'run.html'}"
        )
    if not file.parent.exists():
        raise CommandError(f"there is no directory {file.parent} to write {file.name} to")
    for name in journals.names() if file.exists() else ():
        journal = journals.store(name).file
        if journal is not None and journal.exists() and file.samefile(journal):
            raise CommandError(f"{file} is the journal itself; name another file with -o")


def write_file(file: Path, text: str, *, private: bool = False, chosen: bool = True) -> None:
    """Write a file; if the user has not `chosen` it, replace it with links and permissions."""
    mode = PRIVATE_FILE if private else 0o666
    try:
        if not chosen:
            file.unlink(missing_ok=True)
        with open(
            file,
            "w" if chosen else "x",
            encoding="utf-8",
            opener=lambda path, flags: os.open(path, flags, mode),
        ) as output:
            output.write(text)
    except OSError as exc:
        raise CommandError(
            f"{file} cannot be written: {exc.strerror or exc}; say another file with -o"
        ) from exc
