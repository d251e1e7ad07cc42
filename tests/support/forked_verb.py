"""``combee`` in a shell, forked by ``forked.typed``; a script that is run by itself, for its start has to be quick.

``forked_verb.py SOCKET ARGUMENT…`` hands folder, environment and streams over, passes signals on, and ends as it.
"""

import os
import signal
import socket
import sys
from pathlib import Path


def main() -> int:
    """Return the exit code of the verb."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as verb:
        verb.connect(sys.argv[1])
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, lambda number, _frame: verb.send(bytes([number])))
        environment = [f"{name}={value}" for name, value in os.environ.items()]  # noqa: TID251 - handed on
        words = (str(Path.cwd()), str(len(sys.argv[2:])), *sys.argv[2:], *environment)
        socket.send_fds(verb, ["\0".join(words).encode()], [0, 1, 2])
        return int(verb.recv(8))


if __name__ == "__main__":
    sys.exit(main())
