"""What sessions know: memories, and what each session was given to read."""
