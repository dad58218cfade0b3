"""The details that a script adds to the request of a child."""

from collections.abc import Mapping
from typing import Any

import msgspec


class CallDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The details of one call."""

    label: str = ""
    """The place of the call, for people; a moved call is the same call."""
    context: str = ""
    output_schema: Mapping[str, Any] | None = None

    @property
    def key(self) -> str:
        """The part of them that tells calls apart; empty if there is none."""
        if not self.context and self.output_schema is None:
            return ""
        return msgspec.json.encode([self.context, self.output_schema], order="sorted").decode()
