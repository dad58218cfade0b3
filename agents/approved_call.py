"""A call that was approved, and which files it may touch on its way.

A call is approved by the path that it names. What is really opened may be another file: a link has
changed since, or a search meets it from above. So each file is judged again where it is opened, by
the path that was walked.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final

import attrs

from orchestrator.agents.approval import (
    ApprovalRule,
    Subject,
    Verdict,
    matching_rule,
    strictest_rule,
)


@attrs.frozen(kw_only=True)
class ApprovedCall:
    """What was approved, and the rules for everything else."""

    subject: Subject
    """What the call was about when it was approved."""
    policies: Sequence[Sequence[ApprovalRule]]
    """The rules of the agent, and of all above it."""

    def may_open(self, path: str, real_path: str) -> bool:
        """Return whether the call may use the file that its own path has led to.

        Args:
            path: relative to the workspace, all links resolved.
            real_path: the absolute path of the same file.
        """
        found = attrs.evolve(self.subject, path=path, real_path=real_path)
        if found == self.subject:
            return True
        # It leads elsewhere by now, and no person was asked about that.
        rule = strictest_rule(self.policies, found)
        return rule is None or rule.verdict is Verdict.ALLOW

    def may_meet(self, path: str, real_path: str) -> bool:
        """Return whether the call may show a file that it meets below its own path.

        What no rule is about is approved with the folder that it is in. What a rule asks about is
        approved only if that rule has asked about the folder, too: a search does not ask for each
        file.
        """
        found = attrs.evolve(self.subject, path=path, real_path=real_path)
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
