"""Run the command as ``python -m kai``."""

from kai.cli import main

if __name__ == "__main__":
    main()
