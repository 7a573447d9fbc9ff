"""A session's texts: the fixed task (user message) and everything variable (appended system prompt).

The CLI expands ``@/path`` and a leading ``/command`` in user messages, but not in the appended system prompt. So
nothing variable ever stands in the task.

The appended part begins with what seldom changes (library, estate) and goes on to what changes with every session: a
second session of a tier repeats the first one's request byte for byte up to its environment, so that the model API's
cache can take that part.
"""

from __future__ import annotations

from typing import Final

import msgspec

from claudeops.domain.sessions import Handover
from claudeops.text import regex
from claudeops.wording.prompt import sections
from claudeops.wording.prompt.knowledge import Facts, Knowledge

_MENTION: Final = regex.Pattern(
    rf"(?:^|[^{regex.WORD}.])(@)[^{regex.SPACE}]"
)  # an address such as ops@example.org is not one
# Letters of every script, forty times over, would be a program of four MiB: how many there are is counted.
_PLACEHOLDER: Final = regex.Pattern(rf"@<[{regex.WORD} .-]+>")
_LONGEST_PLACEHOLDER: Final = 40 + len("@<>")
"""``ssh <user>@<host>``: no file has such a name, so the CLI finds none to include."""
_MOST_LINES: Final = 5  # named in a fault


RESUMED: Final = (
    "An operator comes back to this session. What is asked of you now is the request for this session in your system "
    "prompt; what you said and saw before still stands above, and may be out of date. Do what is asked, look again "
    "where it matters, and deliver a new report of what you have seen now."
)
"""The task of a session that goes on with an earlier conversation, in place of its tier's."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """The texts that a session is started with."""

    task: str  # the user message
    system: str  # appended to the system prompt


def render(
    template: str,
    *,
    facts: Facts,
    knowledge: Knowledge,
    request: str | None,
    handover: Handover | None,
    by_probes: bool = False,
) -> Prompt:
    """Return the texts of a session; the system part stays below 150 KB of UTF-8 and says where it was cut.

    ``request`` is an operator's, for this session. ``by_probes``: the handover is not of an earlier session, but
    of the daemon's own probes.
    """
    record = knowledge.on_record
    parts = [
        sections.library(knowledge.texts, knowledge.listing) if knowledge.texts or knowledge.listing else "",
        sections.estate(knowledge.estate, knowledge.services) if knowledge.estate.manifests else "",
        sections.environment(facts),
        sections.request(request) if request is not None and request.strip() else "",
        sections.cooldowns(record.cooldowns, facts.timezone) if record.cooldowns else "",
        sections.last_verdicts(record.last_verdicts, facts) if record.last_verdicts else "",
        sections.probes(knowledge.probes) if knowledge.probes else "",
        sections.memories(knowledge.memories) if knowledge.memories.chosen else "",
        sections.cases(record.cases, facts) if record.cases else "",
        sections.escalation(handover, record.tried, by_probes=by_probes) if handover is not None else "",
    ]
    return Prompt(task=template.strip(), system="\n\n".join(part for part in parts if part))


def template_fault(template: str) -> str | None:
    """Return why the CLI would not read a template as plain text, in one sentence, or ``None``.

    Seen with CLI 2.1.329: a user message that begins with ``/`` is a command, and ``@/path`` inserts a file.
    """
    text = template.strip()
    if not text:
        return "it is empty: write what the session is to do"
    if text.startswith("/"):
        return "it begins with '/', which the CLI takes for a command: begin with a word"
    if mentions := _mentions(template):
        named = ", ".join(str(line) for line in mentions[:_MOST_LINES])
        more = f" and {len(mentions) - _MOST_LINES} more" if len(mentions) > _MOST_LINES else ""
        what = f"line {named} holds" if len(mentions) == 1 else f"lines {named}{more} hold"
        return (
            f"{what} an '@' that the CLI takes for a file to include: leave it out, or put a blank after it "
            "('@ /path'); an address (ops@example.org) and a placeholder (<user>@<host>) may stay"
        )
    return None


def _mentions(text: str) -> list[int]:
    """Return the lines of a template, from 1, that hold an ``@`` which the CLI would expand; each once."""
    lines = _PLACEHOLDER.sub(_without_at, text).split("\n")
    return [number for number, line in enumerate(lines, start=1) if _MENTION.search(line) is not None]


def _without_at(placeholder: regex.Match[str]) -> str:
    found: str = placeholder[0]
    return ">" if len(found) <= _LONGEST_PLACEHOLDER else found
