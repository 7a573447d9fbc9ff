"""Runs the ``claudeops`` command as ``python -m claudeops``."""

from __future__ import annotations

from claudeops.cli.main import main

if __name__ == "__main__":
    main()
