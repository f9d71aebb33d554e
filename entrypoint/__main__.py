"""`python -m entrypoint COMMAND …`."""

from entrypoint.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
