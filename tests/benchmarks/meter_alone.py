"""A meter in a process of its own, as it is in the daemon: a real database, one running session.

``python meter_alone.py DIRECTORY URL`` prints its address and the session's token; it ends with its stdin.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import anyio.to_thread

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules, TierChoice
from claudeops.domain.sessions import NewSession, Trigger
from claudeops.domain.spending.budget import Budgets
from claudeops.engine.meter.meter import MeterDeps, serve_meter
from claudeops.engine.meter.upstream import ModelUpstream
from claudeops.engine.owners import this_owner
from claudeops.logs import get_logger
from claudeops.settings.files import packaged
from claudeops.store.migrate import migrate
from claudeops.store.store import open_store
from claudeops.structs import replace
from claudeops.text.redact import Redactor

_PLENTY = 1e6


async def _run(directory: Path, url: str) -> None:
    database = f"sqlite:///{directory / 'claudeops.db'}"
    migrate(database, migrations_dir=packaged("migrations"), backup_dir=directory)
    tiers = (TierChoice(number=1, model="haiku", max_budget_usd=_PLENTY),)
    budgets = Budgets(chain_usd=_PLENTY, day_usd=_PLENTY)
    rules = EscalationRules(max_tier=1, dry_run=False, tiers=tiers, budgets=budgets)
    clock, owner = Clock(), this_owner()
    store = open_store(database)
    await store.retention.make_room()  # as the daemon does
    await store.recovery.reconcile(owner, now=clock.now(), alive=lambda _: True)
    await store.queue.enqueue(NewSession(tier=1, trigger=Trigger.MANUAL, model="haiku"), rules=rules, now=clock.now())
    (session,) = await store.claims.claim(
        owner, rules=replace(rules), now=clock.now(), cli_session_id=lambda: "bench", log_path=lambda _: ""
    )
    books = MeterDeps(
        spending=store.spending, rules=rules, clock=clock, log=get_logger(), redactor_with=lambda key: Redactor((key,))
    )
    async with (
        serve_meter(ModelUpstream(base_url=url, secret="not-asked-for"), books) as meter,
        meter.account(session, over_budget=lambda: None) as account,
    ):
        sys.stdout.write(f"{meter.url} {account.token}\n")
        sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.read)
    await store.close()


if __name__ == "__main__":
    anyio.run(_run, Path(sys.argv[1]), sys.argv[2])
