"""Pure: no I/O, no clock, no logging. Values in, values out."""
