"""The check that the package `agents` is ours, and not of another distribution.

It is imported before anything else that imports `agents`, so that its error is the first.
"""

from orchestrator import agents

if getattr(agents, "DISTRIBUTION", None) != "delegation-orchestrator":
    raise ImportError(
        f"the package 'agents' at {agents.__file__} is not ours: another distribution"
        " (openai-agents, most likely) has the same import name and lies over it. Use a"
        " virtual environment that has only one of the two, or remove the other and run:"
        " pip install --force-reinstall delegation-orchestrator"
    )
