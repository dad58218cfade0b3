"""A model's name leads to the model, or to a sentence that says what is missing."""

import sys

import pytest

from orchestrator.agents import DefinitionError
from orchestrator.agents.models.registry import model_named

KEY = {"OPENAI_API_KEY": "sk-secret"}


@pytest.mark.parametrize("name", ["", "gpt-5", "openai", "openai:", ":gpt-5", "nobody:x"])
def test_a_name_without_a_provider_and_a_model_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=r"[Aa] model's name is 'openai:<model>'") as caught:
        model_named(name, KEY)

    assert f"there is no model {name!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpt-5", "openai:gpt-5"),
        ("opnai:gpt-5", "openai:gpt-5"),
        ("OpenAI:gpt-5", "openai:gpt-5"),
        ("openai/gpt-5", "openai:gpt-5"),
        ("claude-sonnet-5", "anthropic:claude-sonnet-5"),
        ("antropic:claude-sonnet-5", "anthropic:claude-sonnet-5"),
    ],
)
def test_a_mistyped_model_name_gets_a_suggestion(name: str, meant: str) -> None:
    with pytest.raises(DefinitionError, match=f"did you mean '{meant}'"):
        model_named(name, KEY)


@pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": ""}, {"OPENAI_API_KEY": "\n"}])
def test_a_missing_key_is_asked_for(environ: dict[str, str]) -> None:
    """The error explains how to start without a key."""
    with pytest.raises(
        DefinitionError,
        match=r"'openai:gpt-5' needs a key: set OPENAI_API_KEY; `orchestrator simulate`",
    ):
        model_named("openai:gpt-5", environ)


def test_a_missing_package_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is an extra, so a plain installation has none."""
    monkeypatch.delitem(
        sys.modules, "orchestrator.agents.models.providers.openai_chat", raising=False
    )
    # This is how Python remembers that there is no such package.
    monkeypatch.setitem(sys.modules, "httpx2", None)

    with pytest.raises(DefinitionError, match="needs the package 'httpx2': pip install"):
        model_named("openai:gpt-5", KEY)


@pytest.mark.parametrize("name", ["openai:gpt-5-mini", "openai:ft:gpt-4o:house::abc"])
async def test_a_named_model_keeps_its_name(name: str) -> None:
    """The provider's own names have colons too."""
    model = model_named(name, KEY)

    assert model.name == name
    await model.aclose()
