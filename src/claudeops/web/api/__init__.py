"""The REST API: the values that the commands print, by HTTP, and what describes them to programs.

A list answers with the page and the cursor of the next one, without totals; one thing has an `ETag`. Every text is as
the commands print it, without what hides.
"""
