"""A Messages API that plays a script, for the real CLI to talk to at no cost."""
