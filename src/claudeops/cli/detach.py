"""``claudeops bootstrap --detach``: a chain for the running daemon, of which nobody here waits for the end."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import click

from claudeops.app.chain import queue_for_daemon
from claudeops.cli.bootstrap import (
    NAME,
    print_failed_start,
    print_suppressed,
    setup_body,
    wanted_session,
    warn_of_strangers,
)
from claudeops.cli.output import Exit, print_document
from claudeops.cli.start import read_settings
from claudeops.domain.sessions import NewSession, Session, Suppressed
from claudeops.errors import ClaudeopsError


def queue_and_leave(
    *, tier: int, prompt_text: str | None, services: Sequence[str] = (), resume: int | None = None, as_json: bool
) -> int:
    """Queue one chain for the daemon, print the id of its first session, and return the exit status."""
    try:
        settings = read_settings()
        warn_of_strangers(services, settings)
        new = wanted_session(settings, tier=tier, prompt_text=prompt_text, services=services, resume=resume)
        queued = anyio.run(queue_for_daemon, settings, new)
    except ClaudeopsError as error:
        return print_failed_start(error, as_json=as_json)
    if isinstance(queued, Suppressed):
        return print_suppressed(queued, new, as_json=as_json)
    if as_json:
        return print_document(NAME, _body(queued, new), Exit.OK)
    click.echo(queued.id)  # alone on its line, for scripts; people find the rest on stderr
    click.echo(f"claudeops: queued; `claudeops tail {queued.id}` follows it.", err=True)
    return Exit.OK


def _body(queued: Session, new: NewSession) -> dict[str, object]:
    prompt = new.prompt_text or ""
    return {
        "prompt": prompt,
        "setup": setup_body(),
        "routed_matches": [],
        # The daemon has it: no reason to stop is known yet.
        "turn": {"prompt": prompt, "output": "", "stop_reason": None, "cancel_observed": False},
        "persisted_session_path": None,
        "detached": True,
        "session_id": queued.id,
        "tier": queued.tier,
        "model": queued.model,
    }
