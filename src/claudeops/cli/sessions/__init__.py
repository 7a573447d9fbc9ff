"""The commands on what is on record of sessions, and on their logs."""
