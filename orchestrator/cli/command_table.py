"""The commands by use, each with its sentence: enough for the help, without importing any.

A command is the function of its name, and is imported when it is called.
"""

from typing import Final

COMMANDS: Final[dict[str, dict[str, str]]] = {
    "Begin": {
        "demo": "Watch a small team delegate: no key, no server.",
        "init": "Write a small team and its test, to begin with.",
        "ask": "Ask a model one question.",
        "models": "List the providers of models, and what each needs: a key, an extra.",
        "doctor": "Check that journals are whole, and what holds commands here.",
    },
    "Run agents": {
        "run": "Run an agent or a pipeline on a goal.",
        "chat": "Talk to an agent. Results of its background tasks arrive while you talk.",
        "resume": "Go on with a run that was interrupted.",
        "retry": "Do a task that did not succeed again, in a new run that has all else.",
        "fork": "Go on live from where a task was delegated, in a new run.",
        "simulate": "Run an agent many times in virtual time: no model is asked, no tool is run.",
    },
    "Look at runs": {
        "runs": "List the newest runs, or delete old ones.",
        "watch": "Watch a run from another terminal, and act on it.",
        "tree": "Show the tree of a run.",
        "show": "Show a task: its goal, status, usage, transcript and children.",
        "report": "Write a run as one HTML file that needs no network.",
        "export": "Write the tree of a run for another program.",
        "replay": "Do a run again from its journal: no model is asked, no tool is run.",
    },
    "Act on runs": {
        "cancel": "Cancel a task with all below it, or a whole run.",
        "pause": "Start no new task below a task, or in a whole run, until it is unpaused.",
        "unpause": "Start tasks below a task again, those that wait first.",
        "message": "Send a message to a running task.",
        "approve": "Approve a call that waits for an approval.",
        "deny": "Deny a call that waits for an approval.",
    },
    "Serve": {
        "ui": "Open the console in a browser: watch, steer, stop, chat and approve.",
        "serve": "Put the agents of a file behind HTTP, for OpenAI's clients and the console.",
        "mcp": "Be a server of MCP with the agents of a file, and manage the servers of agents.",
        "gateway": "Let people talk to an agent on Telegram, Slack or Discord.",
        "schedule": "Begin the jobs of a file by the clock, and deliver what they answer.",
        "jobs": "See, run, change, pause, resume and remove jobs, which begin by the clock.",
        "worker": "Run the tool calls and the turns that runs on other machines lend.",
        "workers": "List the workers, what they run, and the calls that wait for one.",
        "keys": "Make, list, replace and revoke the keys of a server.",
        "audit": "Show who did what and when, and check that no row was changed.",
    },
}
SHARED_MODULES: Final = {
    **dict.fromkeys(COMMANDS["Act on runs"], "control"),
    **dict.fromkeys(("fork", "retry"), "copies"),
}
"""The modules that have several commands; any other command has the module of its name."""


def module_of(command: str) -> str:
    """Return the name of the module that has a command."""
    return f"orchestrator.cli.commands.{SHARED_MODULES.get(command, command)}"
