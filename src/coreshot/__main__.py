"""`python -m coreshot`: the command line."""

from coreshot.cli import main

main()
