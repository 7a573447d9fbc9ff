"""Judges what agents ask for: the language of their commands, the rules of a tier, what is within reach. Pure."""
