"""Notices: which there are, whom each one reaches, when, and by which channel."""
