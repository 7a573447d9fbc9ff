"""``claudeops doctor``: checks every precondition and names the remedies. It creates and changes nothing."""
