"""The work queues that ship. Each is a leaf behind `WorkQueue`, and imports its engine late."""
