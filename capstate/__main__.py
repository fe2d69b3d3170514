"""``python -m capstate``: the command line."""

from capstate.cli import main

main()
