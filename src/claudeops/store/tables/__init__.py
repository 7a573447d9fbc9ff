"""The schema: every table and column of the database with its meaning, a module a subject.

Other people's tools read these names; a change needs a migration in ``migrations/versions`` and a new `HEAD`. Times are
UTC. Ids are never used again, not even after their row was deleted, because log files carry them. The database also
checks closed sets of values that rarely change. The meanings are in no database: `docs/reference/database.md` is made
of them.

A module knows the tables of its subject alone, so that a command loads those that it reads; `all_tables` has them all.
"""

from typing import Final

HEAD: Final = "0041"
"""The revision of the newest migration; it is compared before alembic is imported at all."""

JOBS_MARK: Final = "claudeops, version "
"""Begins the comment of the table of jobs, if there is one; the version is the name of the library's last script."""
