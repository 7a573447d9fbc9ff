"""The pure half of the filter in front of the Docker Engine API: what a request is, and what of an answer is shown.

`requests` decides from method, target and body alone; `parameters` knows the values that a query may have; `masks`
takes secrets out of answers; `grants` compares a change with what the gate allowed. Nothing here reads, sends or waits.
"""
