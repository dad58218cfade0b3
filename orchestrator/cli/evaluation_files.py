"""The files of an evaluation: its cases, its scorers, and its sets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from orchestrator.backends import journals_at
from orchestrator.cli.agent_file import load_variables
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import SETS
from orchestrator.ports.journals import Journals
from orchestrator.products.evaluation.cases import Case, Dataset, from_pydantic, read_cases
from orchestrator.products.evaluation.recorded import Trial, read_trials


def set_file(name: str) -> Path:
    """Return the file of a set: a path, or a name in the folder of sets."""
    return Path(name) if "/" in name or name.endswith(".db") else SETS / f"{name}.db"


def read_set(name: str) -> list[Trial]:
    """Return the trials of a set."""
    file = set_file(name)
    if not file.is_file():
        names = ", ".join(sorted(it.stem for it in SETS.glob("*.db"))) or "no set"
        raise CommandError(f"there is no set {file}; {SETS}/ has {names}")
    trials = read_trials(_journals(file))
    if not trials:
        raise CommandError(f"{file} has no trial that has ended")
    return trials


def _journals(file: Path) -> Journals:
    return journals_at(str(file))


def load_cases(file: Path, variables: Sequence[dict[str, Any]]) -> Dataset:
    """Return the cases of a file: JSONL, YAML, JSON, or Python with a `Dataset` or cases."""
    if file.suffix != ".py":
        return read_cases(file, custom_evaluators=_evaluator_types(variables))
    if not file.is_file():
        raise CommandError(f"there is no file {file}")
    for value in load_variables(file, "cases").values():
        if isinstance(value, Dataset):
            return value
        if type(value).__name__ == "Dataset" and hasattr(value, "evaluators"):
            return from_pydantic(value, default_name=file.stem)
        if isinstance(value, list | tuple):
            cases = [it for it in cast("Sequence[Any]", value) if isinstance(it, Case)]
            if cases:
                return Dataset(name=file.stem, cases=tuple(cases))
    raise CommandError(f"{file} has no Dataset and no list of Case(...) at its top level")


def load_scorers(targets: Sequence[str]) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the scorers FILE:NAME, one or a list, or the list `scorers` of FILE; all variables."""
    scorers: list[Any] = []
    loaded: dict[Path, dict[str, Any]] = {}
    for target in targets:
        is_file = Path(target).is_file()
        path, _, name = (target, "", "") if is_file else target.rpartition(":")
        file = Path(path)
        if not file.is_file():
            raise CommandError(f"--scorer {target}: there is no file {path or target}")
        if file not in loaded:
            loaded[file] = load_variables(file, f"scorers_{len(loaded)}")
        found = loaded[file]
        if name and name not in found:
            raise CommandError(f"--scorer {target}: {file} has no {name!r}")
        if not name and "scorers" not in found:
            raise CommandError(
                f"--scorer {target}: name a function, {target}:NAME, or let the file have a list"
                " `scorers`"
            )
        chosen = found[name or "scorers"]
        scorers += cast("Sequence[Any]", chosen) if isinstance(chosen, list | tuple) else [chosen]
    return scorers, list(loaded.values())


def _evaluator_types(variables: Sequence[dict[str, Any]]) -> list[type[Any]]:
    """Return the evaluators of pydantic-evals that the files of scorers define."""
    return [
        value
        for them in variables
        for value in them.values()
        if isinstance(value, type)
        and hasattr(value, "evaluate_async")
        and value.__module__ == them.get("__name__")
    ]
