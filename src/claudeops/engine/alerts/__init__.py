"""Alerts, from the door to the chains that follow."""
