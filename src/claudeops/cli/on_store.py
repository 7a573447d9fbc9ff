"""Commands that need the settings and every subject of the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from claudeops.cli.reply import CommandResult
from claudeops.cli.text.screen import progress
from claudeops.cli.with_settings import run_with_settings
from claudeops.settings import Settings
from claudeops.store.database import Announce, waking
from claudeops.store.store import Store, open_store


def run_on_store(
    command: str, work: Callable[[Settings, Store], Awaitable[CommandResult]], *, as_json: bool, target: str = ""
) -> int:
    """Open the operator's database, do the work on it, print the result and return the exit status."""

    async def on_store(settings: Settings) -> CommandResult:
        with progress("working on the database"):
            store = open_store(
                settings.places.database_url, changed=waking(settings.places.state_dir), announce=_announce(settings)
            )
            try:
                return await work(settings, store)
            finally:
                await store.close()

    return run_with_settings(command, on_store, as_json=as_json, target=target)


def _announce(settings: Settings) -> Announce | None:
    if not settings.node.in_fleet:
        return None
    from claudeops.dispatch.procrastinate import announcer  # noqa: PLC0415 - most commands have no other nodes to wake

    return announcer()
