"""What is remembered between sessions, and how far it is believed.

The arithmetic is in ``confidence``, what a report changes in ``merge``, the whole way from a report to rows in
``learning``, what a prompt shows in ``selection``, and what operators do by hand in ``stated``.
"""
