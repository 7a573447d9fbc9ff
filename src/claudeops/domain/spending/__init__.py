"""What models cost, what sessions may spend, and what a request may ask for."""
