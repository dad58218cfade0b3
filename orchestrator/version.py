"""The version, for code that cannot wait for the metadata of packages."""

from typing import Final

VERSION: Final = "0.1.0"
