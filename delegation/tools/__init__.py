"""The tools of a model that delegates: `delegate_task`, `task` and `ask_parent`."""
