"""The composition root: from the operator's settings to a running daemon, and down again in order."""
