"""The tools by which an agent delegates: `delegate_task` and `task`, and the texts that they answer."""
