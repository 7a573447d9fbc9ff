"""What becomes of a session and its chain: how it ended, what follows, what may start."""
