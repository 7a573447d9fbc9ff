"""Commands on the tokens of those who call the daemon."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT, WholeHelp, examples

_NEVER: Final = "never"
_LATEST: Final = timedelta(days=36_500)


class _Scope(click.ParamType[str]):
    """What a token is for, as `claudeops.domain.web.token.scope_fault` takes it."""

    name = "scope"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the scope."""
        from claudeops.domain.web.token import scope_fault

        scope = str(value).strip()
        if fault := scope_fault(scope):
            self.fail(fault, param, ctx)
        return scope


class _End(click.ParamType["datetime | None"]):
    """When a token ends: a length of time from now, or ``never``."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime | None:
        """Return the moment, UTC."""
        from claudeops.domain.listing import duration

        if value is None or isinstance(value, datetime) or str(value).strip().lower() == _NEVER:
            return value if isinstance(value, datetime) else None
        try:
            length = duration(str(value))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no length of time: write 12h, 90d or {_NEVER}.", param, ctx)
        if not timedelta(0) < length <= _LATEST:
            self.fail(f"{value!r} is no time in which it could be used: write 12h, 90d or {_NEVER}.", param, ctx)
        return datetime.now(UTC) + length


@click.command("login-link", epilog=examples("claudeops login-link", "claudeops login-link --name bea"))
@click.option("--name", help="The user of `user list` who logs in by it; default: you, as admin.")
@OUTPUT_FORMAT
def login_link(name: str | None, output_format: str) -> int:
    """Print a link that logs one browser in to the pages, once, within a minute.

    The link is an answer to whoever may read the daemon's database: it stands in no log. Exit status: 0, or 1 where
    there are no pages, or no such user.
    """
    from claudeops.cli.access.tokens import print_link

    return print_link(name, as_json=output_format == "json")


@click.group(cls=WholeHelp)
def token() -> None:
    """Let others call the daemon: make, list and revoke their tokens."""


@token.command(
    "create",
    epilog=examples(
        "claudeops token create --name alertmanager --scope alerts:prometheus",
        "claudeops token create --name backup --scope heartbeats:backup --expires never",
    ),
)
@click.option("--name", required=True, help="Who gets it; for you.")
@click.option(
    "--scope",
    "scopes",
    type=_Scope(),
    multiple=True,
    required=True,
    help="What it is for: read, metrics, trigger, stop, operate, alerts:<source> or heartbeats:<name>."
    " May be given several times.",
)
@click.option("--expires", type=_End(), default="365d", show_default=True, help="After which time it ends, or `never`.")
@OUTPUT_FORMAT
def create_token(name: str, scopes: tuple[str, ...], expires: datetime | None, output_format: str) -> int:
    """Make a token and print it; nobody can read it a second time.

    It works at once, and no token answers an approval. Exit status: 0 made, 78 configuration.
    """
    from claudeops.cli.access.tokens import make_token

    return make_token(name=name, scopes=scopes, expires_at=expires, as_json=output_format == "json")


@token.command("list", epilog=examples("claudeops token list", "claudeops token list --all -o json"))
@click.option("--all", "everything", is_flag=True, help="Also those that have expired or were revoked.")
@OUTPUT_FORMAT
def list_tokens(everything: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Show who has a token, for what, until when, and when each was last used."""
    from claudeops.cli.access.tokens import print_tokens

    return print_tokens(everything=everything, as_json=output_format == "json")


@token.command("revoke", epilog=examples("claudeops token revoke 3", "claudeops token revoke 3 -o json"))
@click.argument("token_id", type=click.IntRange(min=1, max=999_999_999), metavar="ID")
@OUTPUT_FORMAT
def revoke_token(token_id: int, output_format: str) -> int:
    """Let a token open nothing any more; a running daemon knows within a second.

    ID is the number in the token, which `token list` shows. Exit status: 0 revoked, 1 there is none or it is revoked
    already, 78 configuration.
    """
    from claudeops.cli.access.tokens import revoke

    return revoke(token_id, as_json=output_format == "json")
