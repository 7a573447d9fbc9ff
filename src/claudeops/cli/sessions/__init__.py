"""Commands on sessions: what is on record of them, their logs, and what a log would have led to."""
