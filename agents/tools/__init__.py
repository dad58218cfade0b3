"""Tools: what an agent may use, and one package for each kind that ships."""

from pathlib import Path

__path__.append(str(Path(__file__).parent / "old_paths"))
