"""Pages: server-rendered, complete without JavaScript, kept up to date with it.

A page is one template and the values that the command of the same name prints. Where a browser asks for a part
(`HX-Request`), the same address answers with the content alone.
"""
