"""Texts of attackers, and the database that is full of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from claudeops.store.tables.all_tables import metadata
from support.stores import Database

MARK: Final = "pwned"
"""What a text that has become code leaves behind: the name of a global, or of a request."""

_ADDRESS: Final = f"http://127.0.0.1:9/{MARK}"

TEXTS: Final[Sequence[str]] = (
    f"<script>window.{MARK}=1</script>",
    f"</script><script>window.{MARK}=1</script>",
    f"<img src=x onerror='window.{MARK}=1'>",
    f"<svg onload='window.{MARK}=1'>",
    f"<svg><script>window.{MARK}=1</script></svg>",
    f"<svg><a xlink:href='javascript:window.{MARK}=1'><text>x</text></a></svg>",
    f"<math><mtext><table><mglyph><style><img src=x onerror='window.{MARK}=1'>",
    f"<body onload='window.{MARK}=1'>",
    f"<input autofocus onfocus='window.{MARK}=1'>",
    f"<details open ontoggle='window.{MARK}=1'>",
    f"<iframe srcdoc='<script>parent.{MARK}=1</script>'></iframe>",
    f"<iframe src='javascript:parent.{MARK}=1'></iframe>",
    f"<object data='{_ADDRESS}'></object>",
    f"<embed src='{_ADDRESS}'>",
    f"<link rel=stylesheet href='{_ADDRESS}'>",
    f"<style>@import '{_ADDRESS}';</style>",
    f"<style>*{{background:url({_ADDRESS})}}</style>",
    f"<div style='background:url({_ADDRESS})'>x</div>",
    f"<img src='{_ADDRESS}'>",
    f"<video poster='{_ADDRESS}'></video>",
    f"<audio src='{_ADDRESS}' autoplay></audio>",
    f"<base href='{_ADDRESS}/'>",
    f"<meta http-equiv=refresh content='0;url={_ADDRESS}'>",
    "<meta http-equiv='Content-Security-Policy' content=\"script-src 'unsafe-inline'\">",
    f"<form action='{_ADDRESS}'><button autofocus>Approve</button></form>",
    f"<a href='{_ADDRESS}' ping='{_ADDRESS}'>x</a>",
    f"<a href='javascript:window.{MARK}=1'>x</a>",
    f"javascript:window.{MARK}=1",
    f'" onmouseover="window.{MARK}=1" x="',
    f"' onmouseover='window.{MARK}=1' x='",
    f"x onload=window.{MARK}=1",
    "<div hx-get='/logout' hx-trigger='load'>x</div>",
    f"<div hx-on:load='window.{MARK}=1' hx-trigger='load'>x</div>",
    f"<div data-hx-on::load='window.{MARK}=1'>x</div>",
    f"<div hx-sse:connect='{_ADDRESS}'>x</div>",
    f"<div hx-get='{_ADDRESS}' hx-trigger='load' hx-nonce='x'>x</div>",
    f"<template><script>window.{MARK}=1</script></template>",
    f"<noscript><p title='</noscript><img src=x onerror=window.{MARK}=1>'>",
    f"<!--><img src=x onerror=window.{MARK}=1>-->",
    f"<![CDATA[<script>window.{MARK}=1</script>]]>",
    f"<textarea></textarea><script>window.{MARK}=1</script>",
    f"</title><script>window.{MARK}=1</script>",
    f"</pre></code><script>window.{MARK}=1</script>",
    f"</option></select><script>window.{MARK}=1</script>",
    f"&lt;script&gt;window.{MARK}=1&lt;/script&gt;",
    f"&#60;script&#62;window.{MARK}=1&#60;/script&#62;",
    f"\\u003cscript\\u003ewindow.{MARK}=1\\u003c/script\\u003e",
    f"{{{{ 7 * 7 }}}}{{% set {MARK} = 1 %}}",
    f"${{window.{MARK}=1}}",
    f"`${{window.{MARK}=1}}`",
    f"data: x\n\ndata: <script>window.{MARK}=1</script>\n\n",
    f"id: 999\nevent: ended\ndata: <script>window.{MARK}=1</script>\n\n",
    f"\r\nSet-Cookie: {MARK}=1\r\n\r\n<script>window.{MARK}=1</script>",
    f"\x1b]8;;javascript:window.{MARK}=1\x1b\\click\x1b]8;;\x1b\\",
    "\x1b[31mred\x1b[0m\x1b[2J",
    "\u202ereversed\u202c \u2066isolated\u2069",
    "zero\u200bwidth\ufeff\u2060joined\u00ad",
    f"\u2028window.{MARK}=1\u2029",
    "\u0000nul\u0007bell\u0008back",
    "<scr\u0000ipt>window.pwned=1</scr\u0000ipt>",
    "\ud83d\ude00 \ufffd ẋ̷̛͎".encode("utf-16", "surrogatepass").decode("utf-16"),
    "<" * 2000,
    "A" * 5000,
    f"[x](javascript:window.{MARK}=1) ![x]({_ADDRESS})",
)


def fill(database: Database, text: str) -> int:
    """Put a text into every column of texts that takes it; return how many rows have it."""
    rows = 0
    with database.connect() as connection:
        for table in metadata.sorted_tables:
            for column in table.columns:
                if isinstance(column.type, sa.String | sa.Text) or "Text" in type(column.type).__name__:
                    rows += _written(connection, table, column.name, text.replace("\x00", ""))
    return rows


_CODED = frozenset(
    {
        *("digest", "hash", "previous_hash", "mac", "call_hash", "audit_head", "cli_session_id", "log_path", "owner"),
        *("payload", "input", "scripts", "services", "matchers", "witnesses", "labels", "annotations", "context"),
        *("warnings", "group_key", "counters", "latency", "scopes", "outcome", "decision_reason", "extraction_method"),
        *("yes_digest", "no_digest", "ping_runs", "kind", "mac_key", "trust", "resolution", "failure_kind"),
        *("error_category", "topic", "result", "verdict", "status", "state", "level", "severity", "role", "name"),
        *("source", "key", "fingerprint", "value", "schedule", "session", "probe", "decision", "held", "trigger"),
    }
)
"""Columns that are no free text: closed sets, digests, keys, JSON."""


def _written(connection: sa.Connection, table: sa.Table, column: str, text: str) -> int:
    if column in _CODED or table.name == "alembic_version":
        return 0
    try:
        with connection.begin():
            return connection.execute(sa.text(f"UPDATE {table.name} SET {column} = :text"), {"text": text}).rowcount  # noqa: S608 - names of ours
    except sa.exc.IntegrityError:  # a key, or a closed set
        return 0
