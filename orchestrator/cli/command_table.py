"""The table of commands by use, each with its sentence for the help, which imports no command.

A command is the function of its name, and is imported when it is called.
"""

from typing import Final

COMMANDS: Final[dict[str, dict[str, str]]] = {
    "Begin": {
        "demo": "Watch a small team delegate: no key, no server.",
        "init": "Write a small team and its test, to start with.",
        "ask": "Ask a model one question.",
        "models": "List the providers of models, and the key or extra that each needs.",
        "doctor": "Check that journals are whole, and show the sandbox of this machine.",
    },
    "Run agents": {
        "run": "Run an agent or a pipeline on a goal.",
        "script": "Run a script: async Python over the agents of a file.",
        "chat": "Talk to an agent. Results of its background tasks arrive while you talk.",
        "resume": "Continue a run that was interrupted.",
        "retry": "Run a task again, in a new run that keeps all other work.",
        "fork": "Run again from the point where a task was delegated, in a new run.",
        "draw": "Draw an agent or a pipeline before it runs.",
        "simulate": "Run an agent many times in virtual time: no model is asked, and no tool runs.",
    },
    "Look at runs": {
        "runs": "List the newest runs, or delete old ones.",
        "watch": "Watch a run from another terminal, and act on it.",
        "tree": "Show the tree of a run.",
        "show": "Show a task: its goal, status, usage, transcript and children.",
        "scripts": "List the scripts of runs, and save one as a pipeline of a team.",
        "report": "Write a run as one HTML file that needs no network.",
        "export": "Write the tree of a run for another program.",
        "replay": "Replay a run from its journal: no model is asked, and no tool runs.",
        "check": "Replay all stored runs with new code, and list those that differ.",
    },
    "Evaluate": {
        "eval": "Run a team on cases, score the runs, and compare them with a baseline.",
        "dataset": "Turn a run into a case of a dataset.",
        "blame": "Find the task that is to blame for the score of a run.",
    },
    "Act on runs": {
        "cancel": "Cancel a task and all tasks below it, or a whole run.",
        "pause": "Start no new task below a task, or in a whole run, until it is unpaused.",
        "unpause": "Start tasks below a paused task again.",
        "message": "Send a message to a running task.",
        "approve": "Approve a call that waits for an approval.",
        "deny": "Deny a call that waits for an approval.",
    },
    "Serve": {
        "ui": "Open the console in a browser: watch, steer, stop, chat and approve.",
        "serve": "Serve the agents of a file over HTTP, for OpenAI's clients and the console.",
        "mcp": "Serve the agents of a file over MCP, and manage the MCP servers of agents.",
        "acp": "Serve an agent and its team to an editor: Zed, JetBrains, Neovim, Emacs.",
        "gateway": "Let people talk to an agent on Telegram, Slack or Discord.",
        "schedule": "Start the jobs of a file by the clock, and deliver their answers.",
        "jobs": "List, run, change, pause, resume and remove the jobs that the clock starts.",
        "worker": "Run the tool calls and the turns that runs on other machines lend.",
        "workers": "List the workers, their work, and the calls that wait for a worker.",
        "keys": "Make, list, replace and revoke the keys of a server.",
        "audit": "Show who did what and when, and check that no row was changed.",
    },
}
SHARED_MODULES: Final = {
    **dict.fromkeys(COMMANDS["Act on runs"], "control"),
    **dict.fromkeys(("fork", "retry"), "copies"),
}
"""The modules with several commands; any other command has a module of its own name."""


def module_of(command: str) -> str:
    """Return the name of the module that has a command."""
    return f"orchestrator.cli.commands.{SHARED_MODULES.get(command, command)}"
