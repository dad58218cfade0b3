"""Network by name: which hosts a command may reach, and the proxy that it reaches them through."""
