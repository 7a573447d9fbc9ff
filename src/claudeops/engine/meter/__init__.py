"""The meter: every model call passes through it, is bounded, paid for and booked."""
