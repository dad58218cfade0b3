"""The model of the examples: a scripted one, or the one that you name.

    python examples/research_brief.py --model openai:gpt-5-mini

Each example has `model=NAMED or ScriptedModel(...)`. Under another command line, as in
`orchestrator run examples/research_brief.py "Trio"`, set the variable EXAMPLES_MODEL instead.
"""

import argparse
import os
import sys
from pathlib import Path

from orchestrator import DefinitionError
from orchestrator.models import model_named


def _named() -> str:
    named = os.environ.get("EXAMPLES_MODEL", "")
    if Path(sys.argv[0]).resolve().parent != Path(__file__).resolve().parent:
        return named
    about = sys.modules["__main__"].__doc__ or ""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument(
        "--model",
        default=named,
        metavar="NAME",
        help="a model to ask, such as openai:gpt-5-mini; without it, a script answers",
    )
    named = str(parser.parse_args().model)
    if named:
        try:
            model_named(named, os.environ)
        except DefinitionError as exc:
            parser.error(str(exc))
    return named


NAMED = _named()
