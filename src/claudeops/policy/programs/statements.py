"""Which SQL statements only read: a single statement that begins with a reading word and calls only known functions.

A function can do anything (read files, write, sleep, call another database), so functions that are not listed are
refused. So are writing words, wherever they are, comments (MySQL runs some), and texts that a client takes for a
command of its own. What a view or an operator does behind a name is not visible here: the role must be a read-only one.
"""

from __future__ import annotations

from typing import Final

from claudeops.text import regex

LONGEST: Final = 4000  # characters
_SECRET: Final = regex.Pattern(
    r"(?i).*(?:passw|secret|token|credential|api_?key|private_?key|pg_shadow|pg_authid|user_mapping|mysql\s*\.\s*user"
    r"|mysql`?\s*\.|global_priv|rolpass|authentication_string|pg_hba|pg_file|pg_read|lo_|dblink|pg_largeobject).*"
)
_TOKEN: Final = regex.Pattern(r"[A-Za-z_][A-Za-z0-9_$]*")
_QUOTED: Final = regex.Pattern(r"'[^'\"]*'|\"[^'\"]*\"")
"""A literal or a quoted name. One with the other's quotes inside is refused: servers differ about which one begins."""


def refuse_sql(text: str) -> str | None:
    """Return why a statement is refused, or None for one that only reads, and shows everything that it does."""
    if len(text) > LONGEST or not text.isprintable() or "\\" in text:
        return "write one short statement, on one line, without backslashes"
    bare = _QUOTED.sub(lambda found: found[0] if found[0].startswith('"') else " ", text.strip().removesuffix(";"))
    for mark in (";", "--", "/*", "#", "$", "@", "`", "^", ":="):
        if mark in bare:
            return f"a statement may not hold {mark!r} here"
    if "'" in bare or '"' in _QUOTED.sub("", bare):
        return "no quote may stand within other quotes, nor alone"
    if _SECRET.fullmatch(" ".join(text.split())):
        return "a statement that names passwords, keys, accounts or files is not allowed"
    return _refuse_words(bare)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BEGINS: Final = _words("select show explain describe desc with table values")
_WRITES: Final = _words(
    "insert update delete merge replace upsert create alter drop truncate grant revoke call do execute exec prepare"
    " deallocate lock unlock vacuum analyze reindex cluster refresh copy load import into outfile dumpfile set reset"
    " begin commit rollback savepoint start listen notify unlisten discard comment security handler install kill flush"
    " shutdown attach detach pragma use rename optimize repair system source tee pager delimiter edit"
)
_KEYWORDS: Final = _words(
    "in and or not from where as on values over filter exists any all some using by select when then else case end"
    " between like ilike is join union intersect except having limit offset distinct with interval within group order"
    " partition lateral only table recursive materialized returning return explain format verbose buffers costs timing"
)
_FUNCTIONS: Final = _words(
    "count sum avg min max abs round ceil ceiling floor mod greatest least coalesce nullif ifnull if isnull length"
    " char_length octet_length lower upper trim ltrim rtrim left right"
    " substr substring concat concat_ws position"
    " now current_timestamp date time year month day hour minute second age extract date_trunc date_part to_char"
    " date_format from_unixtime unix_timestamp timestampdiff datediff date_sub date_add cast convert row_number rank"
    " dense_rank lag lead first_value last_value ntile percentile_cont percentile_disc string_agg array_agg"
    " group_concat array_length unnest generate_series"
    " pg_database_size pg_relation_size pg_total_relation_size pg_table_size"
    " pg_indexes_size pg_tablespace_size pg_size_pretty pg_is_in_recovery pg_last_xact_replay_timestamp"
    " pg_last_wal_receive_lsn pg_last_wal_replay_lsn pg_current_wal_lsn pg_wal_lsn_diff pg_blocking_pids"
    " pg_postmaster_start_time pg_conf_load_time pg_stat_get_activity pg_backend_pid current_database current_schema"
    " current_user version database schema user connection_id format numeric decimal varchar char bool_and bool_or"
)


def _refuse_words(bare: str) -> str | None:
    """Judge a statement, without its literals, word by word."""
    if _quoted_call(bare):
        return "a quoted name may not be called"
    tokens = [(found[0].lower(), bare[found.end() :].lstrip()) for found in _TOKEN.finditer(bare)]
    if not tokens or tokens[0][0] not in _BEGINS:
        return f"only {', '.join(sorted(_BEGINS))} are allowed"
    for word, following in tokens:
        if word in _WRITES:
            return f"{word.upper()} could write: only statements that read are allowed"
        if following.startswith("(") and word not in _FUNCTIONS | _KEYWORDS:
            return f"the function {word} is not known to only read"
    return None


def _quoted_call(bare: str) -> bool:
    """Whether a quoted name is followed by a parenthesis."""
    return any(piece.lstrip().startswith("(") for piece in bare.split('"')[2::2])
