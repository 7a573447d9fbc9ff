"""``claudeops notify test``: one message to one target, past the outbox, and what the target answered."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import anyio

from claudeops.cli.reply import (
    CommandResult,
    Exit,
    not_found,
    print_failure,
    print_result,
)
from claudeops.domain.notices.notice import DeliveryOutcome, Target
from claudeops.errors import ClaudeopsError, ErrorKind, SpawnError
from claudeops.settings import Settings
from claudeops.text.escapes import visible
from claudeops.text.redact import Redactor

_COMMAND: Final = "notify test"


def print_test(target: str, *, as_json: bool) -> int:
    """Send a target a message; return the exit status: 0 delivered, 1 not."""
    from claudeops.cli.with_settings import read_settings  # noqa: PLC0415 - mistakes are answered without it

    try:
        settings = read_settings()
        found = next((each for each in settings.notices.targets if each.name == target), None)
        if found is None:
            return print_result(_COMMAND, _unknown(target, settings), as_json=as_json)
        body = anyio.run(partial(_sent, found, settings))
    except ClaudeopsError as error:
        return print_failure(_COMMAND, error, as_json=as_json, target=target)
    status = Exit.OK if body["result"] == DeliveryOutcome.DELIVERED.value else Exit.UNRESOLVED
    said = f": {body['answer']}" if body["answer"] else ""
    remedy = f"\n  {body['remedy']}" if body["remedy"] else ""
    text = f"{target}: {body['result']} after {body['took_ms']} ms{said}{remedy}"
    done = CommandResult(text=text, body=body, exit_code=status, on_stdout=True)
    return print_result(_COMMAND, done, as_json=as_json)


async def _sent(target: Target, settings: Settings) -> dict[str, object]:
    from claudeops.app.notify import send_test  # noqa: PLC0415 - as above

    began = time.monotonic()
    try:
        result = await send_test(settings, target)
    except OSError as error:
        raise SpawnError(f"no courier could be started: {error.strerror}.", kind=ErrorKind.DELIVERY) from error
    took = round((time.monotonic() - began) * 1000)
    said = visible(Redactor(settings.secrets).text(result.error))
    remedy = result.cause.remedy if result.cause is not None else ""
    answer = {"answer": said or None, "remedy": remedy or None}
    return {"target": target.name, "result": result.result.value, **answer, "took_ms": took}


def _unknown(target: str, settings: Settings) -> CommandResult:
    names = ", ".join(sorted(each.name for each in settings.notices.targets))
    known = names or "none: set CLAUDEOPS_APPRISE_URLS or CLAUDEOPS_NOTIFY_PATH"
    return not_found("target_not_found", target, f"there is no target {target!r}; known are {known}")
