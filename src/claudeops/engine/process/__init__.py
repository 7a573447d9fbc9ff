"""Processes: a session's CLI, everything that descends from it, and what all of them may use."""

from __future__ import annotations

from typing import Final

SESSION_MARK: Final = "CLAUDEOPS_SESSION_MARK"
"""The environment variable that every process of a session inherits. Here, because every command asks for it first."""
