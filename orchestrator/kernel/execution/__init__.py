"""The execution of a task: its agent, its models and its workspace."""
