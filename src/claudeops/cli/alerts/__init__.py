"""Incidents, silences and recorded alerts on the command line."""
