"""Alerts in the database: what was received and decided, incidents and silences."""
