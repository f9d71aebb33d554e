"""`python -m entrypoint COMMAND …`."""

from entrypoint.cli import main
from yolov9.engine.stop import ignore_stops

if __name__ == "__main__":
    status = main()
    ignore_stops()
    raise SystemExit(status)
