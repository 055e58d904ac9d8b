"""The processes behind `noonbell serve` and `noonbell worker`: sockets, limits of connections, logs, signals, watchdog.

The command line starts them. Nothing here parses options or prints tables.
"""
