"""Rehearsals: the real CLI on a scripted model, watching small services of our own, at no cost."""
