"""The processes of `noonbell serve` and `noonbell worker`: sockets, connection limits, logs, signals, watchdog.

The command line starts them. Nothing here parses options or prints tables.
"""
