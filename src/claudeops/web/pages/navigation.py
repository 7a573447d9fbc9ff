"""The pages that the navigation leads to: those that are needed often, and the rest on a page of links."""

from __future__ import annotations

from typing import Final

OFTEN: Final = (
    ("Now", "/"),
    ("Incidents", "/incidents"),
    ("Approvals", "/approvals"),
    ("Sessions", "/sessions"),
    ("Services", "/services"),
    ("Events", "/events"),
    ("Actions", "/actions"),
    ("Spend", "/spend"),
    ("Why", "/why"),
    ("More", "/more"),
)
"""Name and address of each."""

MORE: Final = (
    ("Memories", "/memories", "What the agents believe, and on what grounds."),
    ("Silences", "/silences", "Which alerts are held back, by whom and how long."),
    ("Schedule", "/schedule", "When each schedule fires next, and what came of its last fire."),
    ("Notifications", "/notifications", "Which notices wait, which were sent, which failed and why."),
    ("Audit", "/audit", "The newest links of the audit chain, which the browser recomputes."),
    ("Policy", "/policy", "The rules by tier, and what the gate would say of a command."),
    ("Passkeys", "/passkeys", "Yours, by which a yes is signed where the operator demands it."),
    ("Settings", "/settings", "The settings in effect, and where each comes from."),
    ("API", "/api", "The same for programs."),
)
"""Name and address of each, and what it shows."""


def place_of(path: str) -> str:
    """Return the entry of the navigation to which a page belongs; empty: none."""
    if path == "/more" or any(_is_of(path, target) for _, target, _ in MORE):
        return "/more"
    return next((target for _, target in OFTEN if _is_of(path, target)), "")


def _is_of(path: str, target: str) -> bool:
    return path == target or (target != "/" and path.startswith(f"{target}/"))
