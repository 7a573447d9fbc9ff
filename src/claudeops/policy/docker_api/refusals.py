"""What the filter in front of the Docker Engine API says instead of passing a request on, and what to do instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_SHOWN: Final = 80  # characters of what a sentence quotes

_SECRETS_STAY: Final = "what is in them stays with the services that use them"
_DECLARED: Final = "write into the report what should change where the container is declared"
_IN_REPORT: Final = "write into the report what should be done"
_INSTEAD: Final = {
    "archive": "read a file with docker exec CONTAINER cat FILE",
    "attach": "read what a container prints with docker logs CONTAINER",
    "auth": "the engine's own login is used",
    "configs": _SECRETS_STAY,
    "create": _DECLARED,
    "export": "read a file with docker exec CONTAINER cat FILE",
    "kill": "use docker restart or docker stop, with --signal where the signal matters",
    "pause": "use docker stop",
    "rename": _DECLARED,
    "resize": "run docker exec without -t",
    "secrets": _SECRETS_STAY,
    "swarm": "docker node ls and docker info say how the swarm is",
    "update": _DECLARED,
}
"""By a word of the path; of several the last counts."""

OF_EXEC: Final = {
    "Privileged": "leave out --privileged",
    "Tty": "leave out -t; with docker compose exec add -T",
    "Detach": "leave out -d",
    "DetachKeys": "leave out --detach-keys",
}
"""By a field that makes more of an exec than the command that the policy judged."""


def not_reached(method: str, words: Sequence[str]) -> str:
    """Word that a path is not served."""
    instead = next((_INSTEAD[word] for word in reversed(words) if word in _INSTEAD), _IN_REPORT)
    return (
        f"{quoted(method)} {quoted('/' + '/'.join(words))} is not reached through the filter of the Docker API, which"
        f" passes looks, and restart, start, stop, unpause and exec where the policy allows them: {instead}"
    )


def no_path(path: str, most: int) -> str:
    """Word that an address is not plain. ``most``: the characters that it may have."""
    return (
        f"the address {quoted(path)} is not taken: write a plain path without %, //, . or .., of at most {most}"
        " characters with its parameters"
    )


def no_name(collection: str, name: str) -> str:
    """Word that a name cannot be one."""
    return f"{quoted(name)} is no name of {collection}: write it as the list of {collection} has it"


def no_parameter(name: str, value: str, path: str) -> str:
    """Word that a parameter is unknown, stands there twice or has a value of another shape."""
    return (
        f"the parameter {quoted(name)} of {quoted(path)} with the value {quoted(value)} is not taken:"
        " leave it out, or write it once and in the form of the Docker API"
    )


def no_exec(field: str) -> str:
    """Word that a field makes more of an exec than its command."""
    return f"an exec with {field} is not reached through the filter of the Docker API: {OF_EXEC[field]}"


def no_body(wanted: str) -> str:
    """Word that a body is not the object that it has to be."""
    return f"the body is not taken: send one JSON object, each field once, with no more than {wanted}"


def quoted(text: str) -> str:
    """Return the beginning of what a client wrote, on one line."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in text[:_SHOWN])
    return shown + ("…" if len(text) > _SHOWN else "")
