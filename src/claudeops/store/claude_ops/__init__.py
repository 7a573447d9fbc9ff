"""The database of Claude Ops, read once and taken over into ours."""
