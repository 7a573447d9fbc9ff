"""The way of a whole database from SQLite to PostgreSQL."""
