"""Processes: a session's CLI, everything that descends from it, and what all of them may use."""
