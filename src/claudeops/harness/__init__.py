"""The kinds of CLI that claudeops can drive, behind one protocol. Pure: bytes and values, no processes."""
