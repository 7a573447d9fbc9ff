"""Statements that every session needs, put together once.

Building a statement and looking it up among the compiled ones takes three times as long as running it on SQLite.
Values are given when they are run: of an UPDATE or INSERT the names of columns, beside the parameters named here.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, insert, update

from claudeops.store.tables import cooldown_actions, sessions, tool_calls

CHANGE_SESSION: Final = update(sessions).where(sessions.c.id == bindparam("session"))
"""Needs ``session``, its id."""

CHANGE_SESSION_AS_SEEN: Final = CHANGE_SESSION.where(
    sessions.c.status == bindparam("seen_status"), sessions.c.attempt == bindparam("seen_attempt")
)
"""Needs ``session``, ``seen_status`` and ``seen_attempt``: changes nothing when somebody was faster."""

ADD_SESSION: Final = insert(sessions)
ADD_CALL: Final = insert(tool_calls)
ADD_ACTION: Final = insert(cooldown_actions)
