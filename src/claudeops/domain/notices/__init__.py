"""What people are told: which notices there are, whom each one reaches, when, and in which words."""
