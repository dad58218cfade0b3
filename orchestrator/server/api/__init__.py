"""What is only ours: runs and their trees, facts as they come, tasks, approvals, conversations."""
