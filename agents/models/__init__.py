"""Models: the port, its providers and wrappers, and the registry that finds a model by name."""

from pathlib import Path

__path__.append(str(Path(__file__).parent / "old_paths"))
