"""Facts about a made-up session, as its prompt tells them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from claudeops.wording.prompt.knowledge import Facts

MOMENT: Final = datetime(2026, 11, 21, 11, 30, tzinfo=UTC)
FACTS: Final = Facts(
    now=MOMENT,
    timezone="Europe/Berlin",
    tier=2,
    tier_name="investigate",
    max_tier=3,
    dry_run=False,
    repos_dir="/repos",
    repositories=("home", "office"),
    workdir="/state/sessions/000012/work",
    state_dir="/state/sessions/000012/state",
    session_id=12,
    chain_id=10,
    actions=("restart",),
)
