"""The headers with secrets that the forwarder adds to what a session sends."""
