"""The real CLI against a scripted model, at no cost."""
