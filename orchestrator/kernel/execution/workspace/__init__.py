"""The machine of a task: its folder or git worktree, and its background commands.

A tool runs in a `ToolContext`: the workspace, the environment without secrets, the files that the
task has read, and the commands that it has started. The context closes before the task settles.
The orchestrator owns background commands. The end of one is mail, which the result of
`process(wait | log | kill)` consumes. Each command carries a tag in its environment. The tag
finds commands that left their process group, and commands that a crash left behind.
"""
