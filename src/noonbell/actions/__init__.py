"""Actions, which a run performs: call a function, start a program, send a request, put a message on its way.

Nothing is imported here, so that what one action needs is loaded only where it is used.
"""
