"""The session's log file: written while the session runs, read afterwards and beside it."""
