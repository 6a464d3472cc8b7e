"""``python -m sciml`` is the command ``sciml``."""

from sciml.cli import main

if __name__ == "__main__":
    main()
