"""Notifications out: the sender that empties the outbox, and the courier process that speaks to the targets."""
