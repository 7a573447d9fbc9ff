"""``claudeops doctor``: every precondition looked at, each with its remedy. Nothing is made or changed."""
