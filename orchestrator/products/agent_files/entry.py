"""One agent as a file writes it: its name, its keys with their lines, its instructions."""

from collections.abc import Mapping

import attrs

from orchestrator.products.agent_files.located import Located


@attrs.frozen(kw_only=True)
class AgentEntry:
    """An agent that is not built yet: what its names mean is not looked up."""

    name: Located
    fields: Mapping[str, Located]
    instructions: Located
    at: Located
    """Where its definition begins."""
