"""Live facts about running sessions, the hub that publishes them, and the lines that show them."""
