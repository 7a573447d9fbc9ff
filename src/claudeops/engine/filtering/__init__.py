"""What the filters before docker's engine and before clusters have in common: a process, its line, connections."""
