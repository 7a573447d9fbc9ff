"""All tables together, for those who make, compare or empty a whole database."""

from __future__ import annotations

from typing import Final

from claudeops.store.tables import alerting, base, daemon, web
from claudeops.store.tables import memories as learnt
from claudeops.store.tables.approvals import approvals
from claudeops.store.tables.events import events
from claudeops.store.tables.outbox import outbox
from claudeops.store.tables.probes import probes
from claudeops.store.tables.sessions import sessions

metadata: Final = base.metadata

MODULES: Final = (alerting, approvals, daemon, events, learnt, outbox, probes, sessions, web)
"""Importing them is what puts their tables into `metadata`."""
