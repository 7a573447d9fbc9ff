"""A session's report: its schema, its extraction from the stream, and the evidence behind it."""
