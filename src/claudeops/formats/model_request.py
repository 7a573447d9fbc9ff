"""What a session may ask of the model API: a request is read, checked, and bounded in what it can cost.

https://docs.anthropic.com/en/api/messages, as CLI 2.1.329 speaks it. A request must be paid for by what is known before
it is answered, so everything that it costs must be in it: whatever the API would fetch, run or remember by itself costs
an unknown amount, and reaches places that no policy has judged. What is not known here is refused, in one sentence.
What is known is passed on by its meaning and not by its bytes.

So the JSON is read strictly and written anew, as nothing that a second reader could read otherwise: of a name that an
object has twice the last value is kept, as all readers here do. Integers and texts stay what they are, and floats
become what every reader makes of them. msgspec reads and writes, not orjson, which turns integers beyond 64 bits into
floats. Neither takes half of a surrogate pair, which JavaScript writes where it has cut a text in two: those documents
are read and written by the standard library, four times as slowly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NoReturn, TypeAlias

import msgspec
import re2

from claudeops.domain.spending import prices
from claudeops.text import regex

MOST_PARTS: Final = 2_000_000
"""Members of objects and arrays together, counted generously: this many take about 100 ms and 100 MB of memory.

A prompt that fits into a model's window has fewer, since each takes about a token.
"""

MOST_DIGITS: Final = 309
"""Digits of a number; one with more does not fit a float. Thousands of numbers with thousands of digits take seconds.
"""

_SHORT: Final = 65_536  # bytes; a shorter body cannot take long
_SEPARATORS: Final = (b"{", b"[", b",")
_LONG_NUMBER: Final = re2.compile(rb"[\[,:][ \t\r\n]*-?[0-9]{%d}" % (MOST_DIGITS + 1))
_HALF_PAIRS: Final = (b"\\ud", b"\\uD")
_DECODER: Final = msgspec.json.Decoder()
_ENCODER: Final = msgspec.json.Encoder()


class NotReadableError(ValueError):
    """A body is not JSON, or too much to read; ``str()`` says which, as the end of a sentence."""


def decode(body: bytes) -> object:
    """Return the document of a body.

    Raises `NotReadableError`.
    """
    if len(body) > _SHORT:
        _bounded(body)
    try:
        return _DECODER.decode(body)
    except (ValueError, RecursionError) as error:  # msgspec's errors, and those of UTF-8, are `ValueError`s
        if any(half in body for half in _HALF_PAIRS):
            return _decoded_with_half_pairs(body)
        raise NotReadableError("is not JSON") from error


def encode(document: object) -> bytes:
    """Return a document from `decode` in our own encoding.

    Raises `NotReadableError`.
    """
    try:
        return _ENCODER.encode(document)
    except UnicodeEncodeError:
        pass
    except RecursionError as error:
        raise NotReadableError("is nested too deep") from error
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError as error:
        raise NotReadableError("is nested too deep") from error
    return text.encode("utf-8", "backslashreplace")  # for half a pair, this is JSON's own escape


def _bounded(body: bytes) -> None:
    # Counted in the whole text, strings included: an upper bound that needs no parser.
    if len(body) > MOST_PARTS and sum(map(body.count, _SEPARATORS)) > MOST_PARTS:
        raise NotReadableError(f"has more than {MOST_PARTS} parts")
    if _LONG_NUMBER.search(body) is not None:
        raise NotReadableError(f"has a number of more than {MOST_DIGITS} digits")


def _decoded_with_half_pairs(body: bytes) -> object:
    try:
        return json.loads(body.decode(), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise NotReadableError("is not JSON") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refuse(number)


# --- what a request may ask for -----------------------------------------------------------------------


Objections: TypeAlias = "Iterator[str]"
"""Sentences about what is not passed on; the first one is reported, and the check ends there."""

MOST_BLOCKS: Final = 100_000  # the API's own limit for messages
MOST_SEARCHES: Final = 20  # in one request; the CLI asks for 8
IMAGE_TOKENS: Final = 5_000  # the API scales larger images down to 4784
TOOL_TOKENS: Final = 1_500  # that the API adds for one of its own tools; computer use is the longest
PROMPT_TOKENS: Final = 2_000  # that the API adds to a request, about its tools and the form of the answer
ANY_NUMBER: Final = 1_000_000_000  # of tokens: more than any window

_DEEPEST: Final = 8  # blocks within blocks; the API has three
_NAME_CHARACTERS: Final = 100  # of a model's name, and of a session's words in a sentence

_FIELDS: Final = frozenset(
    (
        *("model", "messages", "system", "tools", "tool_choice", "max_tokens", "metadata", "stop_sequences", "stream"),
        *("temperature", "top_k", "top_p", "thinking", "context_management", "output_config", "output_format"),
        *("cache_control", "service_tier", "inference_geo", "speed", "diagnostics"),
    )
)
# Tuples where the value that is looked up may be anything, even something unhashable.
_ROLES: Final = ("user", "assistant", "system")
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    # Priority is paid for in advance; fast mode has prices of its own, which are not in the table.
    "service_tier": ("auto", "standard_only"),
    "speed": ("standard",),
    "inference_geo": ("global", "us"),
}
_LIFETIMES: Final = ("5m", "1h")  # of cached prompts
_EDITS: Final = frozenset(("clear_thinking", "clear_tool_uses"))  # not ``compact``, which is one more call
_WORDS: Final = frozenset(
    # Blocks whose bytes bound their cost: no token is shorter than a byte.
    ("text", "thinking", "redacted_thinking", "tool_use", "tool_reference", "tool_removal")
)
_NESTS: Final = frozenset(("tool_result", "search_result", "mid_conv_system"))  # blocks within blocks
_SEARCHED: Final = frozenset(("server_tool_use", "web_search_tool_result"))  # earlier results of a search
_OWN_TOOLS: Final = frozenset(("bash", "text_editor", "computer", "memory"))  # defined by the API, run by the CLI
_SEARCH: Final = "web_search_20250305"
_DATED: Final = regex.Pattern(r"_[0-9]{8}$")

BETAS: Final = frozenset(
    # Features by name, without their dates. None of them adds to a request anything that is not checked here.
    (
        *("advanced-tool-use", "cache-diagnosis", "claude-code", "context-1m", "context-management", "effort"),
        *("extended-cache-ttl", "fine-grained-tool-streaming", "inline-tools", "interleaved-thinking"),
        *("mid-conversation-system", "mid-conversation-system-clear-at", "mid-conversation-tool-changes", "oauth"),
        *("per-turn-control", "prompt-caching", "prompt-caching-evict", "prompt-caching-scope", "redact-thinking"),
        *("structured-outputs", "task-budgets", "thinking-display-updates", "thinking-token-count", "token-counting"),
        *("tool-search-tool", "web-search", "web-search-results-only"),
    )
)
_BETA_DATE: Final = regex.Pattern(r"-20[0-9]{2}-?[0-9]{2}-?[0-9]{2}$")


class RequestObjection(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request is not passed on, as one sentence."""

    message: str
    model: bool = False  # it concerns the model alone


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is passed on, and the most that it can use."""

    body: bytes  # our own encoding
    model: str
    prompt_tokens: int
    output_tokens: int
    searches: int = 0


def read_request(
    body: bytes, *, serves: Callable[[str], str | None], searching: bool, counting: bool = False
) -> ModelRequest | RequestObjection:
    """Return what a body asks for, or why it is refused.

    ``serves`` says why a model is not served, ``searching`` whether the session may search the web, ``counting``
    whether the request only counts tokens. Takes up to some hundred milliseconds for the longest bodies.
    """
    try:
        return _read(body, serves=serves, searching=searching, counting=counting)
    except NotReadableError as error:
        return RequestObjection(message=f"the body {error}")


def unknown_betas(features: str) -> list[str]:
    """Return the features in an ``anthropic-beta`` header that are not known here."""
    named = [feature.strip() for feature in features.split(",")]
    return [feature for feature in named if feature and _BETA_DATE.sub("", feature) not in BETAS]


def display(name: object) -> str:
    """Return a word of a session as a sentence can repeat it."""
    return str(name)[:_NAME_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def _read(
    body: bytes, *, serves: Callable[[str], str | None], searching: bool, counting: bool
) -> ModelRequest | RequestObjection:
    document = decode(body)
    if not isinstance(document, dict) or not isinstance(model := document.get("model"), str):
        return RequestObjection(message="the body must be a JSON object with a model")
    if len(model) > _NAME_CHARACTERS:
        return RequestObjection(
            message=f"the name of a model has no more than {_NAME_CHARACTERS} characters", model=True
        )
    if (unserved := serves(model)) is not None:
        return RequestObjection(message=unserved, model=True)
    examination = _Examination(searching=searching)
    for objection in examination.request(document, model=model, counting=counting):
        return RequestObjection(message=objection)
    ours = encode(document)
    return ModelRequest(
        body=ours,
        model=model,
        prompt_tokens=len(ours) + examination.beside_tokens,
        output_tokens=examination.output_tokens,
        searches=examination.searches,
    )


class _Examination:
    """Walks over a request once and counts what it costs beside its bytes."""

    def __init__(self, *, searching: bool) -> None:
        self.beside_tokens = PROMPT_TOKENS
        self.output_tokens = 0
        self.searches = 0
        self._searching = searching
        self._blocks = 0
        self._depth = 0

    def request(self, document: Mapping[str, object], *, model: str, counting: bool) -> Objections:
        given = {name: value for name, value in document.items() if value is not None}
        for name in sorted(given.keys() - _FIELDS):
            yield f"the field {display(name)} is not passed on: what it would cost is not known"
        if not counting or "max_tokens" in given:
            yield from self._output(given, model)
        for name, allowed in _CHOICES.items():
            if name in given and given[name] not in allowed:
                yield f"{name} {display(given[name])} is not passed on: its prices are not known"
        yield from self._tools(given.get("tools"))
        yield from self._context(given.get("context_management"))
        yield from _lifetime(given)
        yield from self._content(given.get("system"), "system")
        yield from self._messages(given.get("messages"))

    def _output(self, given: Mapping[str, object], model: str) -> Objections:
        most = (prices.price_of(model) or prices.DEAREST).most_output
        limits = {"max_tokens": given.get("max_tokens")}
        thinking = given.get("thinking", {})
        if not isinstance(thinking, dict):
            yield "thinking must be an object"
        elif thinking.get("budget_tokens") is not None:
            limits["thinking.budget_tokens"] = thinking["budget_tokens"]  # may exceed the output between tools
        for name, tokens in limits.items():
            if type(tokens) is not int or not 1 <= tokens <= most:  # no bool, which is an int
                yield f"{name} must be a whole number from 1 to {most} for {display(model)}"
            else:
                self.output_tokens = max(self.output_tokens, tokens)

    def _tools(self, tools: object) -> Objections:
        for tool in _items(tools):
            yield from self._tool(tool) if isinstance(tool, dict) else ("tools must be a list of objects",)

    def _tool(self, tool: Mapping[str, object]) -> Objections:
        yield from _lifetime(tool)
        kind = tool.get("type")
        if kind is None or kind == "custom":
            return
        name = str(kind)
        if name == _SEARCH and self._searching:
            uses = tool.get("max_uses")
            if type(uses) is not int or not 1 <= uses <= MOST_SEARCHES:
                yield f"max_uses of a search must be a whole number from 1 to {MOST_SEARCHES}"
            else:
                self.searches += uses
        elif name == _SEARCH:
            yield "the API's web search is not passed on: the tier has no tool WebSearch"
        elif _DATED.sub("", name) in _OWN_TOOLS and _DATED.search(name):
            self.beside_tokens += TOOL_TOKENS
        else:
            yield f"the tool {display(name)} is not passed on: the API would run it by itself, at any cost"

    def _context(self, management: object) -> Objections:
        if not isinstance(management, dict | None):
            yield "context_management must be an object"
            return
        for edit in _items((management or {}).get("edits")):
            kind = str(edit.get("type")) if isinstance(edit, dict) else str(edit)
            if _DATED.sub("", kind) not in _EDITS:
                yield f"the edit {display(kind)} is not passed on: what it would cost is not known"

    def _messages(self, messages: object) -> Objections:
        for message in _items(messages):
            if not isinstance(message, dict):
                yield "messages must be a list of objects"
            elif message.get("role") not in _ROLES:
                yield f"the role {display(message.get('role'))} is not known"
            else:
                yield from _lifetime(message)
                yield from self._content(message.get("content"), "a message")
            yield from self._counted()

    def _counted(self) -> Objections:
        self._blocks += 1
        if self._blocks > MOST_BLOCKS:
            yield f"the request has more than {MOST_BLOCKS} messages and blocks"

    # --- blocks -----------------------------------------------------------------------------------------

    def _content(self, content: object, of: str) -> Objections:
        if isinstance(content, str):
            return
        self._depth += 1
        if self._depth > _DEEPEST:
            yield "the request has blocks too deep within blocks"
        for block in _items(content):
            yield from self._counted()
            wrong = f"the content of {of} must be text or a list of blocks"
            yield from self._block(block) if isinstance(block, dict) else (wrong,)
        self._depth -= 1

    def _block(self, block: Mapping[str, object]) -> Objections:
        yield from _lifetime(block)
        match kind := block.get("type"):
            case str() if kind in _WORDS:
                pass
            case str() if kind in _NESTS:
                yield from self._content(block.get("content"), f"a {kind}")
            case "image" | "document":
                yield from self._source(block.get("source"), kind)
            case "tool_addition":
                yield from self._addition(block.get("tool"))
            case str() if kind in _SEARCHED and self._searching:
                self.beside_tokens = ANY_NUMBER  # the results are encrypted
            case _:
                yield f"the block {display(kind)} is not passed on: what it would cost is not known"

    def _source(self, source: object, of: str) -> Objections:
        kind = source.get("type") if isinstance(source, dict) else None
        match of, kind:
            case "image", "base64":
                self.beside_tokens += IMAGE_TOKENS  # a large image of one colour may have few bytes
            case "document", "base64":
                self.beside_tokens = ANY_NUMBER  # its text is compressed
            case "document", "text":
                pass
            case "document", "content" if isinstance(source, dict):
                yield from self._content(source.get("content"), "a document")
            case _:
                how = display(kind)
                yield f"the {of} by {how} is not passed on: the API would fetch it by itself; send it in base64"

    def _addition(self, tool: object) -> Objections:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind == "tool_definition" and isinstance(tool, dict) and isinstance(tool.get("definition"), dict):
            yield from self._tool(tool["definition"])
        elif kind != "tool_reference":
            yield f"the added tool {display(kind)} is not passed on: what it would cost is not known"


def _lifetime(holder: Mapping[str, object]) -> Objections:
    """Object to a cache lifetime whose price is not known."""
    control = holder.get("cache_control")
    if not isinstance(control, dict | None):
        yield "cache_control must be an object"
    elif control and (kept := control.get("ttl")) is not None and kept not in _LIFETIMES:
        yield f"cache_control with a ttl of {display(kept)} is not passed on: its prices are not known"


def _items(value: object) -> Iterable[object]:
    """Return the items of a list; anything else counts as a list with one unknown item."""
    if value is None:
        return ()
    return value if isinstance(value, list) else ("no list",)
