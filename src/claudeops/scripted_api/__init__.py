"""A Messages API that plays a script, so that the real CLI can run at no cost."""
