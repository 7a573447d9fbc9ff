"""Pages that are needed less often, which the page `/more` leads to."""
