"""The database, behind the engine's Store port."""
