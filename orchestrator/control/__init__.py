"""The control socket: another process of the same user reads and steers this one."""
