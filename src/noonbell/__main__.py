"""`python -m noonbell`: the same program as the console script `noonbell`."""

from noonbell.cli import main

if __name__ == "__main__":
    main()
