"""The kernel: runs agents, delegates, joins or detaches, keeps budgets, and survives crashes."""
