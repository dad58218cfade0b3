"""The version, for what must not wait until the metadata of packages is read."""

from typing import Final

VERSION: Final = "0.1.0"
