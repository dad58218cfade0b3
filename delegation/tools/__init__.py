"""The tools by which a model delegates: `delegate_task`, `task` and `ask_parent`."""
