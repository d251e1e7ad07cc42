"""The guard of a broker, which stops it when no process needs it any more; a script without imports of Combee.

``guard.py LEASE LOG COMMAND…`` turns into COMMAND and leaves a small twin that watches the lease file. Each process
that needs the broker holds a lock on that file, which the kernel drops when the process ends, even by kill -9. When
the lock is free the twin stops the broker.
"""

import fcntl
import os
import signal
import sys
import time

POLL_S = 0.1
STOP_TIMEOUT_S = 15.0
FIRST_OTHER_FD, LAST_OTHER_FD = 3, 65_536


def become(lease: str, log: str, command: list[str]) -> None:
    """Leave the terminal's session, log to a file, fork the twin, turn into the broker."""
    # A session of its own: Ctrl-C at the terminal must not hit the broker before its owners have finished.
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for source, target in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(source, target)
    os.closerange(FIRST_OTHER_FD, min(LAST_OTHER_FD, os.sysconf("SC_OPEN_MAX")))
    broker = os.getpid()
    if os.fork() == 0:
        watch(broker, lease)
        return
    os.execv(command[0], command)  # noqa: S606 - no shell wanted


def watch(broker: int, lease: str) -> None:
    """Stop the broker as soon as nobody holds the lease; return when it is gone."""
    opened = os.open(lease, os.O_RDWR | os.O_CREAT, 0o600)
    while os.getppid() == broker:
        try:
            # Held until the broker is gone, so that nobody can join a broker that is ending.
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(POLL_S)
            continue
        end(broker)
        return


def end(broker: int) -> None:
    """Ask the broker to stop, then insist."""
    for request in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + STOP_TIMEOUT_S
        # The twin is its child: another parent means that it is gone, so no reused id is ever hit.
        if os.getppid() == broker:
            try:
                os.kill(broker, request)
                os.kill(broker, signal.SIGCONT)
            except ProcessLookupError:
                return
        while os.getppid() == broker and time.monotonic() < deadline:
            time.sleep(POLL_S)


if __name__ == "__main__":
    become(sys.argv[1], sys.argv[2], sys.argv[3:])
