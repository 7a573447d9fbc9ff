"""Incidents on record: as lists show them, and one with its whole story."""
