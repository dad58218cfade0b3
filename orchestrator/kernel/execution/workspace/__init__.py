"""The machine of a task: its folder or git worktree, and its background commands."""
