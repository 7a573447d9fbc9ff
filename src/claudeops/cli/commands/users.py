"""Commands on the people who may log in to the pages."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

import sys
from typing import Final

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT, WholeHelp, examples

_ROLES: Final = ("viewer", "operator", "approver", "admin")  # a test compares them with `claudeops.domain.web.login`
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
    from claudeops.cli.access.users import add
    from claudeops.domain.web.login import Role

    password = _password(is_wanted=has_password)
    return add(name, Role(role), password, as_json=output_format == "json")


@user.command("list", epilog=examples("claudeops user list", "claudeops user list -o json"))
@OUTPUT_FORMAT
def list_users(output_format: str) -> int:
    """Show who may log in, in which role, and whether with a password."""
    from claudeops.cli.access.users import print_users

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
    from claudeops.cli.access.users import change
    from claudeops.domain.web.login import Role

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
    from claudeops.cli.access.users import remove

    return remove(name, as_json=output_format == "json")
