"""The limits of delegation: which numbers make sense."""

from typing import Any

import attrs
import pytest

from orchestrator.agents import DefinitionError
from orchestrator.delegation import Rules

LIMITS = [it.name for it in attrs.fields(Rules)]


@pytest.mark.parametrize("limit", LIMITS)
def test_a_negative_rule_is_refused(limit: str) -> None:
    """It is said where it is written, and not when a task finds it."""
    with pytest.raises(DefinitionError, match=rf"Rules\({limit}=-1\) makes no sense"):
        attrs.evolve(Rules(), **{limit: -1})


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_a_number(limit: str) -> None:
    wrong: dict[str, Any] = {limit: "x"}
    with pytest.raises(DefinitionError, match=rf"Rules\({limit}='x'\) is not a number"):
        Rules(**wrong)


@pytest.mark.parametrize("limit", LIMITS)
def test_every_rule_may_be_zero(limit: str) -> None:
    """0 is a number like any other."""
    assert attrs.asdict(attrs.evolve(Rules(), **{limit: 0}))[limit] == 0


def test_a_limit_of_room_may_be_left_open() -> None:
    rules = Rules(live_children=None, live_tasks=None, detached=None)

    assert rules.live_children is rules.live_tasks is rules.detached is None


def test_rules_bound_the_depth_that_a_cancel_can_cross() -> None:
    """On Python 3.11 it would end the whole process."""
    assert Rules(depth=250).depth == 250
    with pytest.raises(DefinitionError, match=r"Rules\(depth=251\) is deeper than the 250"):
        Rules(depth=251)


def test_the_usual_depth_is_far_from_there() -> None:
    assert Rules().depth < 100
