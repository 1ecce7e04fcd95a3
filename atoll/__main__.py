"""`python -m atoll`: the same as the command `atoll`."""

from atoll.cli import main

main()
