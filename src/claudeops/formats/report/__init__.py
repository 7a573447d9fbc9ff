"""A session's report: its schema, and its extraction from the stream."""
