"""Generated scripts keep their budgets, by the count of the provider."""

from hypothesis import given, settings

from tests.orchestrator.script_budgets import SLOW, Round, play_in_virtual_time, rounds


@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
@given(rounds())
def test_no_script_passes_a_budget_by_the_count_of_the_provider(round_: Round) -> None:
    """`python -m tests.orchestrator.script_budgets` plays thousands."""
    assert play_in_virtual_time(round_) == []
