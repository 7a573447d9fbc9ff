"""The ssh keys of a session: which files are keys, and the agent that holds them outside of its cell."""
