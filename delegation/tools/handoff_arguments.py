"""The arguments of `delegate_task` for an agent that may hand its conversation off."""

from typing import Annotated

import msgspec

from orchestrator.delegation.tools.delegate_task import DelegateTask


class DelegateOrHandOff(DelegateTask, frozen=True, forbid_unknown_fields=True):
    """The arguments of `delegate_task` for an agent that may hand its conversation off."""

    handoff: Annotated[
        bool,
        msgspec.Meta(
            description="true: the agent takes this conversation over. It reads what was said in"
            " it, and its answer is your final answer. One goal, and no other call beside it."
        ),
    ] = False
