"""``claudeops token``: which programs may call the daemon, and for what.

Works with and without a running daemon, which reads tokens again every second.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from claudeops.cli.on_database import not_done, now, operators_name, run_on_database
from claudeops.cli.reply import CommandResult
from claudeops.cli.text.layout import Column, Style, TableCell, table
from claudeops.cli.text.screen import looks_of
from claudeops.domain.answers import document
from claudeops.store.access.tokens import Tokens
from claudeops.store.acts import Refusal
from claudeops.store.acts import tokens as acts
from claudeops.store.acts.tokens import TokenEntry
from claudeops.store.database import Database
from claudeops.text.escapes import visible

_CREATE: Final = "token create"
_LIST: Final = "token list"
_REVOKE: Final = "token revoke"


def make_token(*, name: str, scopes: Sequence[str], expires_at: datetime | None, as_json: bool) -> int:
    """Make a token and print it; return the exit status."""
    work = partial(_made, name, scopes, expires_at)
    return run_on_database(_CREATE, work, as_json=as_json, target=name)


def print_tokens(*, everything: bool, as_json: bool) -> int:
    """Print the tokens in force, or all of them; return the exit status."""
    return run_on_database(_LIST, partial(_listed, everything), as_json=as_json)


def revoke(token_id: int, *, as_json: bool) -> int:
    """Revoke a token; return the exit status."""
    return run_on_database(_REVOKE, partial(_revoked, token_id), as_json=as_json, target=str(token_id))


async def _made(name: str, scopes: Sequence[str], expires_at: datetime | None, database: Database) -> CommandResult:
    done = await acts.make_token(
        Tokens(database), name=name, scopes=scopes, expires_at=expires_at, by=operators_name(), now=now()
    )
    if isinstance(done, Refusal):
        return not_done(_CREATE, done)
    scopes_text = ", ".join(done.scopes)
    # The token alone on a line of its own, so that it can be cut out.
    lines = (
        done.token,
        f"token {done.token_id} for {visible(done.token_name)}: {scopes_text}; keep it, it is not shown again",
        f'send it as the header "Authorization: Bearer {done.token}"',
    )
    return CommandResult(text="\n".join(lines), body=document(done))


async def _listed(everything: bool, database: Database) -> CommandResult:  # noqa: FBT001 - bound by name
    shown = await acts.list_tokens(Tokens(database), everything=everything, now=now())
    return CommandResult(
        text=_table(shown), body={"tokens_count": len(shown), "tokens": [document(one) for one in shown]}
    )


async def _revoked(token_id: int, database: Database) -> CommandResult:
    done = await acts.revoke_token(Tokens(database), token_id, by=operators_name(), now=now())
    if isinstance(done, Refusal):
        return not_done(_REVOKE, done)
    text = f"token {done.token_id} ({visible(done.token_name)}): revoked by {done.revoked_by}"
    return CommandResult(text=text, body=document(done))


def _table(tokens: Sequence[TokenEntry]) -> str:
    looks = looks_of()
    columns = [
        Column("ID"),
        Column("NAME", shrinks=True),
        Column("FOR"),
        Column("STATE"),
        Column("EXPIRES"),
        Column("LAST USED"),
    ]
    rows = [
        (
            str(one.token_id),
            TableCell(visible(one.token_name), Style.NAME),
            " ".join(one.scopes),
            one.state.value,
            "never" if one.expires_at is None else looks.time(one.expires_at),
            "never" if one.last_used_at is None else looks.time(one.last_used_at),
        )
        for one in tokens
    ]
    return "\n".join(table(columns, rows, looks)) or "no tokens"
