"""The public names of each room, and the rules for modules and folders."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import orchestrator
from orchestrator import agents, delegation

ROOT = Path(__file__).parent.parent
AT_MOST = 68
PUBLIC_AT_MOST = 100

AGENTS = """
    Agent AgentError AssistantMessage Budget CallDelta CallId CallKey Compacted
    Compaction DefinitionError Failure Hooks PipelineContext Queued InputError LimitExceededError
    Limits McpCommand McpUrl Message MessageId Model ModelError ModelEvent ModelRequest
    ModelSettings
    OutputError Part
    Patience Pipeline Price ReasoningBlock ReasoningDelta RefusedBy Retrying Sandbox
    ScriptExhaustedError ScriptedModel Shape
    Switched TaskContext TextDelta Tool ToolCall ToolError ToolMessage Transcript
    Usage UserMessage agent allow arguments_schema confirm deny input_of is_agent new_message_id
    raising_one_error read_arguments read_output require_schema take_turn ignore_event
    tool unanswered_calls well_formed
"""
DELEGATION = """
    ASK_PARENT ask_parent_tool asked_transcript
    Account AnswerTerms Assignment Cause Children NO_TERMS TaskNotice DelegationError Delegator
    TaskNode DeliveryCapability Detach Encoded Ending Grant ImpossibleEventError Join Ledger
    Mode Origin Outcome OverBudgetError Reason Receipt Refuse Reply Reserved Slots
    Rules SHARED_BUDGET_PREFIX SessionId SessionRecord Status TaskId TaskRecord TaskRequest Tree
    UnreadableFactError UnwritableFactError Decision decode_used_amounts call_key
    control_tool decide decode delegate_tool dispatched_answer encode evict_session
    fits_budget in_dependency_order joined_answer one_line printable readable_characters
    restore_session register_idle_session root_of share_per_result task_result unmet_dependency usd
    encode_shared_use
"""
FROM_AGENTS = """
    Agent AgentError AssistantMessage Budget CallKey Compaction DefinitionError Failure
    Hooks InputError LimitExceededError Limits Message Model
    ModelError
    ModelSettings OutputError Part Patience Pipeline
    Sandbox ScriptedModel TaskContext Tool ToolCall ToolError ToolMessage
    Transcript Usage UserMessage agent allow confirm deny tool
"""
FROM_DELEGATION = """
    Cause Ending Mode Outcome Receipt Reply Rules SessionId Status TaskId Tree
    usd
"""
ORCHESTRATOR = """
    Candidates Child ClosedError EndedError FanOut FanOutFailedError
    JournalError Machine Models Workers
    JournalInUseError MemoryJournal NotInterruptedError Orchestrator OrchestratorError
    Review Run
    RunFailedError Session SessionOpenError Settled SharedBudgetError TaskFailedError
    UnknownIdError best budget delegate detach fallback load_agents map_each map_reduce
    open_orchestrator parallel race
    refine retry route run_sync sequence vote WrongLoopError
    ApprovalNeeded ModelRetried ReasoningWritten RunEvent StreamedRun TaskDelegated TaskEnded
    TextWritten TextReplaced ToolCalled ToolReturned
"""


def test_each_room_exports_exactly_these_names() -> None:
    of_others = [*FROM_AGENTS.split(), *FROM_DELEGATION.split()]
    own = set(orchestrator.__all__) - set(of_others)
    assert sorted(agents.__all__) == sorted(AGENTS.split())
    assert sorted(delegation.__all__) == sorted(DELEGATION.split())
    assert sorted(own) == sorted(ORCHESTRATOR.split())
    for names in (agents.__all__, delegation.__all__, own):
        assert len(names) <= AT_MOST
    assert len(orchestrator.__all__) <= PUBLIC_AT_MOST


def test_a_program_needs_one_import() -> None:
    for room, names in ((agents, FROM_AGENTS), (delegation, FROM_DELEGATION)):
        assert set(names.split()) <= set(orchestrator.__all__)
        for name in names.split():
            assert getattr(orchestrator, name) is getattr(room, name)


def test_every_public_name_has_one_home_and_is_found_by_dir() -> None:
    homes = [name for names in orchestrator._HOMES.values() for name in names.split()]

    assert sorted(homes) == sorted(orchestrator.__all__)
    assert set(orchestrator.__all__) <= set(dir(orchestrator))
    for name in orchestrator.__all__:
        assert getattr(orchestrator, name) is not None


def test_documentation_names_public_modules_alone() -> None:
    """A module inside `agents`, `delegation`, `kernel` or `products` may move at any time."""
    inside = re.compile(
        r"\borchestrator\.(?:agents|delegation|kernel|products)\b(?!.* in `logging`)"
    )
    pages = [it for it in documents() if it.name != "design.md" and it.parent.name != "decisions"]
    files = [*pages, *(ROOT / "examples").glob("*.py")]

    named = {str(it.relative_to(ROOT)): inside.findall(it.read_text()) for it in files}

    assert {name: found for name, found in named.items() if found} == {}


def test_every_module_has_a_docstring() -> None:
    missing = [it for it in sources() if not ast.get_docstring(ast.parse(it.read_text()))]
    assert missing == []


def test_every_folder_is_a_package() -> None:
    folders = {file.parent for file in sources()}
    assert {it for it in folders if not (it / "__init__.py").exists()} == set()


def test_modules_are_named_after_things() -> None:
    """A gerund names an activity, not a thing that a reader looks for."""
    gerunds = {file.name for file in sources() if file.stem.endswith("ing")}
    assert gerunds == set()


def test_only_engine_and_journal_read_the_ledger_of_a_book() -> None:
    """The others read `records`, through which no type checker lets them change the state."""
    ours = ("orchestrator/kernel/engine/", "orchestrator/kernel/journal/")
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in sources()
        if not str(file.relative_to(ROOT)).startswith(ours)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "ledger"
        if ast.unparse(node.value).rpartition(".")[2] in {"book", "_book", "read", "_read"}
    ]
    assert found == []


def test_importing_the_library_stays_light() -> None:
    """A program that only defines agents does not pay for the rest."""
    heavy = [
        "networkx",
        "rich",
        "cyclopts",
        "httpx2",
        "docstring_parser",
        "jsonschema_rs",
        "yaml",
        "trio.testing",
    ]
    code = "import sys, orchestrator; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert set(heavy) & set(done.stdout.split()) == set()


def test_a_product_imports_another_product_by_its_ports_only() -> None:
    products = ROOT / "orchestrator" / "products"
    for file in products.rglob("*.py"):
        own = file.relative_to(products).parts[0]
        for node in ast.walk(ast.parse(file.read_text())):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if module.startswith("orchestrator.products."):
                other, _, inside = module.removeprefix("orchestrator.products.").partition(".")
                names = [it.name for it in node.names] if isinstance(node, ast.ImportFrom) else []
                is_ports = inside == "ports" or (not inside and names == ["ports"])
                # The pages of the viewer are one module.
                assert other in (own, "viewer") or is_ports, f"{file}: {module}"


def sources() -> list[Path]:
    rooms = ("agents", "delegation", "orchestrator")
    return [file for room in rooms for file in (ROOT / room).rglob("*.py")]


def documents() -> list[Path]:
    return [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
