"""The surroundings from which settings are read, for every test here."""

from support.settings_world import world

__all__ = ["world"]
