"""Commands on who may call the daemon: tokens of programs, links and users for people."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT, WholeHelp, examples

_NEVER: Final = "never"
_LATEST: Final = timedelta(days=36_500)


class _Scope(click.ParamType[str]):
    """What a token is for, as `claudeops.domain.access.tokens.scope_fault` takes it."""

    name = "scope"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the scope."""
        from claudeops.domain.access.tokens import scope_fault

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
    from claudeops.cli.login_link import print_link

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
    from claudeops.cli.tokens import make_token

    return make_token(name=name, scopes=scopes, expires_at=expires, as_json=output_format == "json")


@token.command("list", epilog=examples("claudeops token list", "claudeops token list --all -o json"))
@click.option("--all", "everything", is_flag=True, help="Also those that have expired or were revoked.")
@OUTPUT_FORMAT
def list_tokens(everything: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Show who has a token, for what, until when, and when each was last used."""
    from claudeops.cli.tokens import print_tokens

    return print_tokens(everything=everything, as_json=output_format == "json")


@token.command("revoke", epilog=examples("claudeops token revoke 3", "claudeops token revoke 3 -o json"))
@click.argument("token_id", type=click.IntRange(min=1, max=999_999_999), metavar="ID")
@OUTPUT_FORMAT
def revoke_token(token_id: int, output_format: str) -> int:
    """Let a token open nothing any more; a running daemon knows within a second.

    ID is the number in the token, which `token list` shows. Exit status: 0 revoked, 1 there is none or it is revoked
    already, 78 configuration.
    """
    from claudeops.cli.tokens import revoke

    return revoke(token_id, as_json=output_format == "json")


# --- users ------------------------------------------------------------------------------------------------

_ROLES: Final = (
    "viewer",
    "operator",
    "approver",
    "admin",
)  # a test compares them with `claudeops.domain.access.logins`
_MOST_BYTES: Final = 16_384

_PASSWORD: Final = click.option(
    "--password-stdin", "has_password", is_flag=True, help="Take the password from the first line of stdin."
)


def _password(*, is_wanted: bool) -> str | None:
    """Return the first line of stdin; on a terminal it is typed twice and not shown."""
    if not is_wanted:
        return None
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    try:
        return sys.stdin.buffer.readline(_MOST_BYTES).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise click.UsageError("The password on stdin is not UTF-8.") from None


@click.group(cls=WholeHelp)
def user() -> None:
    """Let people log in to the pages: add, list, change and remove users."""


@user.command(
    "add",
    epilog=examples(
        "claudeops user add bea --role operator", "claudeops user add bea --role viewer --password-stdin < password.txt"
    ),
)
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="What NAME may do.")
@_PASSWORD
@OUTPUT_FORMAT
def add_user(name: str, role: str, has_password: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Add a user: a viewer looks, an operator starts and stops as well, an approver answers approvals too.

    An admin may do everything. Without a password NAME logs in by `login-link --name`, or by way of a proxy. Exit
    status: 0 added, 1 there is one of this name or something is wrong with name or password, 78 configuration.
    """
    from claudeops.cli.users import add
    from claudeops.domain.access.logins import Role

    password = _password(is_wanted=has_password)
    return add(name, Role(role), password, as_json=output_format == "json")


@user.command("list", epilog=examples("claudeops user list", "claudeops user list -o json"))
@OUTPUT_FORMAT
def list_users(output_format: str) -> int:
    """Show who may log in, in which role, and whether with a password."""
    from claudeops.cli.users import print_users

    return print_users(as_json=output_format == "json")


@user.command(
    "set",
    epilog=examples("claudeops user set bea --role approver", "claudeops user set bea --password-stdin < password.txt"),
)
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), help="What NAME may do from now on.")
@_PASSWORD
@OUTPUT_FORMAT
def set_user(name: str, role: str | None, has_password: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Change the role of a user, the password, or both; a running daemon knows within a second.

    A new password ends the logins that there are. Exit status: 0 changed, 1 there is no such user or something is wrong
    with the password, 64 usage, 78 configuration.
    """
    from claudeops.cli.users import change
    from claudeops.domain.access.logins import Role

    if role is None and not has_password:
        raise click.UsageError("There is nothing to change: give --role, --password-stdin, or both.")
    password = _password(is_wanted=has_password)
    return change(name, None if role is None else Role(role), password, as_json=output_format == "json")


@user.command("remove", epilog=examples("claudeops user remove bea", "claudeops user remove bea -o json"))
@click.argument("name")
@OUTPUT_FORMAT
def remove_user(name: str, output_format: str) -> int:
    """Remove a user and end its logins; a running daemon knows within a second.

    Exit status: 0 removed, 1 there is no such user, 78 configuration.
    """
    from claudeops.cli.users import remove

    return remove(name, as_json=output_format == "json")
