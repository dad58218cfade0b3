"""An approved call, and the files that it may touch.

A call is approved by the path that it names. It may open another file: a link has changed since, or
a search meets the file from above. So each file is judged again on opening, by its real path.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final

import msgspec
from msgspec.structs import replace

from orchestrator.agents.approval import (
    ApprovalRule,
    Subject,
    Verdict,
    matching_rule,
    strictest_rule,
)


class ApprovedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The approved subject, and the rules for all other files."""

    subject: Subject
    """The subject of the call at the time of its approval."""
    policies: Sequence[Sequence[ApprovalRule]]
    """The rules of the agent, and of all above it."""

    def may_open(self, path: str, real_path: str) -> bool:
        """Return whether the call may use the file that its own path has led to."""
        found = replace(self.subject, path=path, real_path=real_path)
        if found == self.subject:
            return True
        # It leads elsewhere by now, and no person was asked about that.
        rule = strictest_rule(self.policies, found)
        return rule is None or rule.verdict is Verdict.ALLOW

    def may_meet(self, path: str, real_path: str) -> bool:
        """Return whether the call may show a file that it meets below its own path.

        A file without a rule is approved together with its folder. A file whose rule asks is
        approved only if the same rule asked about the folder: a search does not ask for each file.
        """
        found = replace(self.subject, path=path, real_path=real_path)
        for rules in self.policies:
            rule = next((it for it in rules if it.matches(found)), None)
            if rule is None or rule.verdict is Verdict.ALLOW:
                continue
            if rule.verdict is Verdict.DENY:
                return False
            if rule != matching_rule(rules, self.subject):
                return False
        return True


APPROVED_CALL: Final[ContextVar[ApprovedCall | None]] = ContextVar("approved call", default=None)
"""The call that runs; None where no rule is about it."""
