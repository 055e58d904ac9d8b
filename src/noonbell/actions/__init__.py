"""What a run does: call a function, start a program, put a message on its way.

Nothing is imported here, so that what one action needs is loaded only where it is used.
"""
