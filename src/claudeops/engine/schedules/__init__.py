"""When chains start by themselves."""
