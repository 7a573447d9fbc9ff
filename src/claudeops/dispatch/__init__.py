"""Who gives queued sessions to a node."""
