"""The composition root: it turns the operator's settings into a running daemon, and takes it down in order."""
