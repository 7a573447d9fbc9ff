"""A rehearsal: the daemon on a scripted model, and the pages of all that play."""
