"""The tools by which a model delegates: `delegate_task` and `task`."""
