"""Where a task's agent runs, and what it needs there: agents, models, workspace."""
