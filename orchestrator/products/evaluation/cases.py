"""The cases of an evaluation: datasets of pydantic-evals (YAML, JSON, Python), and JSONL."""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, cast

import attrs
import msgspec

from orchestrator.agents import DefinitionError

INSTALL: Final = "pip install 'delegation-orchestrator[eval]'"


@attrs.frozen(kw_only=True)
class Case:
    """One input of an evaluation, with the output that is expected of it."""

    name: str
    inputs: Any
    """The goal of the agent: a text, or the input that a pipeline takes."""
    expected_output: Any = None
    metadata: Any = None
    evaluators: tuple[Any, ...] = ()
    """The evaluators of pydantic-evals for this case alone."""
    recorded_key: str = attrs.field(default="", repr=False)
    """The key of a case that was read from a journal, which has its inputs as text."""

    @property
    def key(self) -> str:
        """A digest that equal inputs have in common: a new name keeps the runs of a case."""
        if self.recorded_key:
            return self.recorded_key
        encoded = msgspec.json.encode(_plain(self.inputs), order="deterministic")
        return blake2b(encoded, digest_size=6).hexdigest()


@attrs.frozen(kw_only=True)
class Dataset:
    """The cases of an evaluation, and the evaluators that the file names for all of them."""

    name: str
    cases: tuple[Case, ...]
    evaluators: tuple[Any, ...] = ()

    def __attrs_post_init__(self) -> None:
        keys: dict[str, str] = {}
        for case in self.cases:
            if (other := keys.setdefault(case.key, case.name)) != case.name:
                raise DefinitionError(
                    f"the cases {other!r} and {case.name!r} of {self.name} have the same inputs:"
                    " remove one, and repeat cases with `repeat`"
                )
        if not self.cases:
            raise DefinitionError(f"{self.name} has no cases")


class _Row(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One line of a JSONL file."""

    inputs: Any
    name: str | None = None
    expected_output: Any = None
    metadata: Any = None


def read_cases(file: Path, *, custom_evaluators: Sequence[type[Any]] = ()) -> Dataset:
    """Return the cases of a JSONL, YAML or JSON file.

    Raises:
        DefinitionError: the file cannot be read, or a case is wrong.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise DefinitionError(f"the cases {file} cannot be read: {exc}") from exc
    if file.suffix == ".jsonl":
        return Dataset(name=file.stem, cases=_read_lines(file, text))
    try:
        from pydantic_evals import Dataset as Foreign
    except ImportError as exc:
        raise DefinitionError(f"{file} needs pydantic-evals: {INSTALL}") from exc
    kind: Literal["json", "yaml"] = "json" if file.suffix == ".json" else "yaml"
    try:
        found: Any = Foreign[Any, Any, Any].from_text(
            text, fmt=kind, custom_evaluator_types=custom_evaluators, default_name=file.stem
        )
    except Exception as exc:  # pydantic-evals raises many kinds, also groups
        raise DefinitionError(f"{file} is not a dataset of pydantic-evals: {_first(exc)}") from exc
    return from_pydantic(found, default_name=file.stem)


def from_pydantic(dataset: Any, *, default_name: str = "cases") -> Dataset:
    """Return a `pydantic_evals.Dataset` as a dataset of ours."""
    return Dataset(
        name=dataset.name or default_name,
        cases=tuple(
            Case(
                name=case.name or f"case {number}",
                inputs=case.inputs,
                expected_output=case.expected_output,
                metadata=case.metadata,
                evaluators=tuple(case.evaluators),
            )
            for number, case in enumerate(dataset.cases, 1)
        ),
        evaluators=tuple(dataset.evaluators),
    )


def add_case(file: Path, case: Case) -> None:
    """Append a case to a JSONL, YAML or JSON file; a new file begins with it."""
    row = {"name": case.name, "inputs": _plain(case.inputs)}
    if case.expected_output is not None:
        row["expected_output"] = _plain(case.expected_output)
    if file.suffix == ".jsonl":
        with file.open("ab") as output:
            output.write(msgspec.json.encode(row) + b"\n")
        return
    import yaml

    old: Any = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
    try:
        document: dict[str, Any] = {**old, "cases": [*old.get("cases", ()), row]}
    except (AttributeError, TypeError) as exc:
        raise DefinitionError(f"{file} is not a dataset: it has no list 'cases'") from exc
    if file.suffix == ".json":
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    else:
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    file.write_text(text, encoding="utf-8")


def _read_lines(file: Path, text: str) -> tuple[Case, ...]:
    cases: list[Case] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=_Row)
        except msgspec.MsgspecError as exc:
            raise DefinitionError(f"{file}, line {number}: {exc}") from exc
        cases.append(
            Case(
                name=row.name or f"case {len(cases) + 1}",
                inputs=row.inputs,
                expected_output=row.expected_output,
                metadata=row.metadata,
            )
        )
    return tuple(cases)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, also one of pydantic."""
    dump = getattr(value, "model_dump", None)
    return msgspec.to_builtins(dump(mode="json") if dump is not None else value)


def _first(error: Any) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("Any", error).exceptions[0]
    return str(error)
