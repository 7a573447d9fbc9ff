"""The operator's settings: every environment variable, its default and its bounds. Nothing else reads them.

Names are imported when they are asked for: a command that only looks for the database does not wait for the policy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # see above
    from claudeops.settings.load import load_settings, require_credentials
    from claudeops.settings.model import Loaded, Settings
    from claudeops.settings.places import prepare_directories, require_repos, unusable_directories
    from claudeops.settings.policy import fragment_texts, policy_document, policy_in_force, policy_of
    from claudeops.settings.sessions import TierSettings
    from claudeops.settings.where import state_dir

__all__ = [
    "Loaded",
    "Settings",
    "TierSettings",
    "fragment_texts",
    "load_settings",
    "policy_document",
    "policy_in_force",
    "policy_of",
    "prepare_directories",
    "require_credentials",
    "require_repos",
    "state_dir",
    "unusable_directories",
]

_HOMES: Final = {
    "load": ("load_settings", "require_credentials"),
    "model": ("Loaded", "Settings"),
    "policy": ("fragment_texts", "policy_document", "policy_in_force", "policy_of"),
    "places": ("prepare_directories", "require_repos", "unusable_directories"),
    "sessions": ("TierSettings",),
    "where": ("state_dir",),
}


def __getattr__(name: str) -> object:
    """Import the module that has the name (PEP 562)."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
