"""The files that `orchestrator init` writes: a team of two, and its test."""

from typing import Final

TEAM: Final = '''\
"""A small team: an editor that delegates the parts of a question to researchers.

What you can do with it:

    python team.py                                     run it
    orchestrator run team.py "Why is the sky blue?"    the same, and watch it grow
    orchestrator chat team.py                          talk to it
    orchestrator simulate team.py --seeds 20           what it takes with real models
    pytest                                             test it
"""

{imports}

{models}
researcher = Agent(
    "researcher",
    instructions="Answer one question, in two sentences.",
    model={researcher},
)
editor = Agent(
    "editor",
    instructions="Split the question, delegate each part to the researcher, merge the answers.",
    model={editor},
    delegates=[researcher],
)

# Commands such as `orchestrator run` load this file for its agents: put code that runs them below.
if __name__ == "__main__":
    run = run_sync(editor, "Why is the sky blue?")
    print(run.output)
    print(run.tree.to_text())
'''
SCRIPTED_IMPORTS: Final = """\
from orchestrator import (
    Agent,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    run_sync,
)
from orchestrator.testing import hand_on"""
SCRIPTED_MODELS: Final = '''
# These models are scripted, so the team runs without a key. A real one is a name, such as
# model="openai:gpt-5-mini" with a key in OPENAI_API_KEY; `orchestrator models` lists them.
def edit(transcript: Transcript) -> str | ToolCall:
    """Delegate twice, then merge what came back."""
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return "Blue light is scattered most, so it comes from everywhere."
    return hand_on("Which light is scattered?", "Why is it not violet?")

'''
NAMED_IMPORTS: Final = "from orchestrator import Agent, run_sync"
NAMED_MODELS: Final = 'MODEL = "{model}"\n'
TEST: Final = '''\
"""The team with scripted models: no key, no network, no waiting."""

import attrs
from team import editor, researcher

from orchestrator import ScriptedModel, run_sync
from orchestrator.testing import assert_tree, hand_on


def test_the_editor_delegates_each_part_and_merges_the_answers() -> None:
    answering = attrs.evolve(researcher, model=ScriptedModel.always("Because."))
    leading = attrs.evolve(
        editor,
        model=ScriptedModel([hand_on("one part", "another part"), "merged"]),
        delegates=[answering],
    )

    run = run_sync(leading, "Why?", journal=":memory:")

    assert run.output == "merged"
    assert_tree(
        run,
        """
        editor succeeded
          researcher[1] succeeded joined: one part
          researcher[2] succeeded joined: another part
        """,
    )
'''


def team_files(model: str | None) -> dict[str, str]:
    """Return the files by name; without a model, the models are scripted."""
    if model is None:
        team = TEAM.format(
            imports=SCRIPTED_IMPORTS,
            models=SCRIPTED_MODELS,
            editor="ScriptedModel.always(edit)",
            researcher='ScriptedModel.always("Blue light is scattered most.")',
        )
    else:
        team = TEAM.format(
            imports=NAMED_IMPORTS,
            models=NAMED_MODELS.format(model=model),
            editor="MODEL",
            researcher="MODEL",
        )
    return {"team.py": team, "test_team.py": TEST}
