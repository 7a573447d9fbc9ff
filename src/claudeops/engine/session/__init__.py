"""One session, from its claimed row to its committed result."""
