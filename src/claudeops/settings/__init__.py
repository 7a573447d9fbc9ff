"""The operator's settings: every environment variable, its default and its bounds. Nothing else reads them."""

from claudeops.settings.load import fragment_texts, load_settings, policy_document, require_credentials
from claudeops.settings.model import Loaded, Settings, TierSettings
from claudeops.settings.places import prepare_directories, require_repos, state_dir, unusable_directories

__all__ = [
    "Loaded",
    "Settings",
    "TierSettings",
    "fragment_texts",
    "load_settings",
    "policy_document",
    "prepare_directories",
    "require_credentials",
    "require_repos",
    "state_dir",
    "unusable_directories",
]
