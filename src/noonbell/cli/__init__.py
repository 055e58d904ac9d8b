"""The `noonbell` program.

Commands are loaded when they are called, so that `noonbell --help` and shell completion answer at once.
"""

from noonbell.cli.program import program

__all__ = ["main", "program"]


def main() -> None:
    """Run the program with the arguments of this process; the console script."""
    program(prog_name="noonbell")
