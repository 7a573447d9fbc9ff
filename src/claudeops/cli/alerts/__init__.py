"""Commands on alerts: what holds them back, who sends them, and a try of their rules."""
