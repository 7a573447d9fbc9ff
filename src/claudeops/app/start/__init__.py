"""What a start does before a daemon is loaded: checks, directories, and the trial of what sessions can be run in."""
