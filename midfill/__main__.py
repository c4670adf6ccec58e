"""`python -m midfill` is the command `midfill`."""

from midfill.cli import main

if __name__ == "__main__":
    main()
