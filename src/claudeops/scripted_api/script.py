"""The script of a rehearsal: what the model does, request by request; and the conversion from a parsed document.

A mistake is reported in one sentence that names its place. The classes match a JSON or TOML document one to one::

    [[tiers.haiku.sessions]]
    steps = [
      { text = "I look at the disk.", tool = { name = "Bash", input = { command = "df -h /" } } },
      { when = { contains = "100%" }, report = { summary = "full: {{last_result}}" } },
      { report = { summary = "all is well" } },
    ]

A tier with one scripted session may leave out ``sessions`` and have ``steps`` directly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self, TypeVar, get_args

import msgspec

from claudeops.errors import ConfigurationError
from claudeops.text.toml_file import nearest

LAST_RESULT: Final = "last_result"
"""In texts and reports, ``{{last_result}}`` becomes the text of the last tool results."""

MAX_DELAY_SECONDS: Final = 3600

T = TypeVar("T", bound=msgspec.Struct)

StopReason = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal"]

Count = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(min_length=1)]
CaptureName = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9_]*$")]
_STOP_REASONS: Final = f"must be one of {', '.join(get_args(StopReason))}"

_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

# https://docs.anthropic.com/en/api/errors; every other status is an ``api_error``
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")

_PLACE: Final = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$?(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN_KEY: Final = re.compile(r"Object contains unknown field `(.*)`")


# --- the script --------------------------------------------------------------------------------------


def _check_pattern(where: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise ValueError(f"{where}: {pattern!r} is not a regular expression: {error}") from None


class ScriptedToolUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool call of the scripted model."""

    name: Name
    input: dict[str, object] = msgspec.field(default_factory=dict)


class ScriptedError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An HTTP error in the API's format.

    CLI 2.1.329 silently repeats a refused request: twice after a 400 (each time with fewer beta features), and up to
    ``CLAUDE_CODE_MAX_RETRIES`` times after a 401, 429, 529 or another 5xx. An error that should last needs a step with
    as many ``times``.
    """

    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    type: str = ""  # "" = the API's own type for this status
    message: str = "scripted error"
    headers: dict[str, str] = msgspec.field(default_factory=dict)  # such as retry-after, in seconds

    def __post_init__(self) -> None:
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"header {name!r}: {value!r} is not an HTTP header: use printable ASCII on one line")

    @property
    def error_type(self) -> str:
        """The type that is sent, such as ``rate_limit_error``."""
        return self.type or _ERROR_TYPES.get(self.status, "api_error")


class Usage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens of one response. The defaults are constant, so that the cost of a rehearsal can be computed."""

    input_tokens: Count = 12
    output_tokens: Count = 60
    cache_creation_input_tokens: Count = 900
    cache_read_input_tokens: Count = 5400


NOTHING: Final = Usage(input_tokens=0, output_tokens=0, cache_creation_input_tokens=0, cache_read_input_tokens=0)


class When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition on the tool results; all parts must hold. Without results, they count as ``""``."""

    contains: Name | None = None  # the last results contain this
    not_contains: Name | None = None  # they do not
    matches: Name | None = None  # this regular expression matches in the last results
    seen: Name | None = None  # some result of the session so far contains this

    def __post_init__(self) -> None:
        if self.contains is None and self.not_contains is None and self.matches is None and self.seen is None:
            raise ValueError("say contains, not_contains, matches or seen")
        if self.matches is not None:
            _check_pattern("matches", self.matches)

    def holds(self, last_result: str, seen: str = "") -> bool:
        """Return whether a step with this condition answers; ``seen`` holds all results of the session."""
        return (
            (self.contains is None or self.contains in last_result)
            and (self.not_contains is None or self.not_contains not in last_result)
            and (self.matches is None or re.search(self.matches, last_result, re.MULTILINE) is not None)
            and (self.seen is None or self.seen in seen or self.seen in last_result)
        )


class ScriptStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer of the scripted model.

    ``text``, ``tool`` or ``tools``, and ``report`` together form one message; without a call it ends the turn.
    Otherwise a step is an ``error`` or a ``hang``. A step whose ``when`` does not hold is skipped for good.
    """

    text: str | None = None
    tool: ScriptedToolUse | None = None
    tools: tuple[ScriptedToolUse, ...] = ()  # parallel calls of one message
    report: dict[str, object] | None = None  # the input of a StructuredOutput call
    error: ScriptedError | None = None
    hang: bool = False  # alone: never answers. With a message: stops in the middle of it and stays silent
    cut: bool = False  # the connection closes in the middle of the message
    stop_reason: StopReason | None = None  # None = tool_use with calls, else end_turn
    usage: Usage = Usage()
    delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_DELAY_SECONDS)] = 0  # before the first byte
    when: When | None = None
    capture: dict[CaptureName, Name] = msgspec.field(default_factory=dict)
    # regular expressions with one group, for the results of this step's calls; later steps use {{name}}
    times: Annotated[int, msgspec.Meta(ge=1)] = 1  # how many requests in a row this step answers

    def __post_init__(self) -> None:
        if self.tool is not None and self.tools:
            raise ValueError("say tool for one call or tools for several, not both")
        if not (self.is_message or self.error or self.hang):
            raise ValueError("a step says text, tool, tools or report, or else error or hang")
        if self.error and (self.is_message or self.hang):
            raise ValueError("error stands alone: it cannot be joined with a message or with hang")
        if self.cut and (self.hang or not self.is_message):
            raise ValueError("cut breaks off a message: it needs text, tool, tools or report, and no hang")
        if self.stop_reason and not self.is_message:
            raise ValueError("stop_reason belongs to a message: it needs text, tool, tools or report")
        if self.capture and not self.tool_calls:
            raise ValueError("capture takes from results: it needs tool or tools")
        for name, pattern in self.capture.items():
            if _check_pattern(f"capture.{name}", pattern).groups != 1:
                raise ValueError(f"capture.{name}: {pattern!r} needs exactly one group in parentheses")

    @property
    def is_message(self) -> bool:
        """Whether the step is a message of the model."""
        return self.text is not None or self.report is not None or bool(self.tool_calls)

    @property
    def tool_calls(self) -> tuple[ScriptedToolUse, ...]:
        """The tool calls of the message, without the report."""
        return self.tools if self.tool is None else (self.tool,)


Steps = Annotated[tuple[ScriptStep, ...], msgspec.Meta(min_length=1)]


class SessionScript(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model does in one session."""

    steps: Steps


class ScriptTier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sessions of one model; the n-th new session gets the n-th of them."""

    sessions: tuple[SessionScript, ...] = ()
    steps: tuple[ScriptStep, ...] = ()  # shorthand for a single session
    model: str = ""  # the model's name or a part of it; "" = the tier's own key
    repeat_last: bool = False  # further sessions repeat the last one

    def __post_init__(self) -> None:
        if bool(self.sessions) == bool(self.steps):
            raise ValueError("say sessions, or steps for a single session")

    @property
    def scripted(self) -> tuple[SessionScript, ...]:
        """The sessions, however they are written."""
        return self.sessions or (SessionScript(steps=self.steps),)

    def place(self, session: int) -> str:
        """Return the place of a session's steps below the tier: ``sessions[0].steps`` or ``steps``."""
        return f"sessions[{session}].steps" if self.sessions else "steps"


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole script: what every model does, by tier."""

    tiers: dict[str, ScriptTier]
    side_text: str = "ok"  # the answer to every request without tools
    by_number: bool = False  # a tier's key is its number, which the system prompts of claudeops' sessions name

    def __post_init__(self) -> None:
        if not self.tiers:
            raise ValueError("tiers: name at least one, such as haiku")
        patterns = [] if self.by_number else sorted(tier.model or name for name, tier in self.tiers.items())
        for pattern in patterns:
            if patterns.count(pattern) > 1:
                raise ValueError(f"tiers: two tiers claim the model {pattern!r}, give each its own")

    def tier_of(self, model: str) -> str | None:
        """Return the tier whose model name, or part of one, is the longest that ``model`` contains."""
        claims = [(len(tier.model or name), name) for name, tier in self.tiers.items() if (tier.model or name) in model]
        return max(claims)[1] if claims else None

    @classmethod
    def from_mapping(cls, obj: object) -> Self:
        """Build a script from a parsed JSON or TOML document.

        Raises `ConfigurationError`: one sentence that begins with the place, as ``tiers.haiku.steps[2].tool: …``.
        """
        if not isinstance(obj, Mapping):
            raise ConfigurationError(f"script: must be a table with tiers, not {type(obj).__name__}")
        tiers = obj.get("tiers")
        if not isinstance(tiers, Mapping):
            raise ConfigurationError("tiers: must be a table of tiers by model name, such as haiku")
        built = {str(name): _convert(tier, ScriptTier, place=f"tiers.{name}") for name, tier in tiers.items()}
        rest = {key: value for key, value in obj.items() if key != "tiers"}
        return _convert({**rest, "tiers": built}, cls, place="")


_SHAPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "steps": ScriptStep,
    "sessions": SessionScript,
    "tool": ScriptedToolUse,
    "tools": ScriptedToolUse,
    "error": ScriptedError,
    "usage": Usage,
    "when": When,
}


def _convert(obj: object, wanted: type[T], *, place: str) -> T:
    return convert(obj, wanted, place=place, shapes=_SHAPES, remedies={"stop_reason": _STOP_REASONS})


# --- documents to values -----------------------------------------------------------------------------


def convert(
    obj: object,
    wanted: type[T],
    *,
    place: str,
    shapes: Mapping[str, type[msgspec.Struct]],
    remedies: Mapping[str, str],
) -> T:
    """Return ``obj`` as ``wanted``; raises `ConfigurationError` with ``<place>.<path>: <what is wrong>``.

    ``shapes`` are the structs below ``wanted`` by key; ``remedies`` replace msgspec's own sentence about a wrong value
    of a key.
    """
    try:
        return msgspec.convert(obj, wanted)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_sentence(str(error), wanted, place, shapes, remedies)) from None


def _sentence(
    complaint: str,
    wanted: type[msgspec.Struct],
    place: str,
    shapes: Mapping[str, type[msgspec.Struct]],
    remedies: Mapping[str, str],
) -> str:
    """Turn ``<what> - at `$.a[0].b``` into ``<place>.a[0].b: <what>``; suggest the nearest name for an unknown key."""
    parts = _PLACE.fullmatch(complaint)
    what, path = (parts["what"], parts["path"] or "") if parts else (complaint, "")
    where = f"{place}{path}".removeprefix(".")
    last = re.findall(r"[A-Za-z_]+", path)[-1:]
    if unknown := _UNKNOWN_KEY.fullmatch(what):
        known = (shapes[last[0]] if last else wanted).__struct_fields__
        what = f"unknown key {unknown[1]!r}, {nearest(unknown[1], known)}"
    elif last and last[0] in remedies:
        what = remedies[last[0]]
    return f"{where}: {what}" if where else what
