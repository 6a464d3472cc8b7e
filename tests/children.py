"""Real processes for tests that kill them: copies of this one, which need not import everything again."""

import os
import signal
import sys
import threading
import traceback
import warnings


class Child:
    """A copy of the process that runs a function, which tells lines through a pipe; used as a context, it never outlives it."""

    def __init__(self, work):
        """``work`` is called with a function that takes a line."""
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Newer Pythons warn of every fork of a process with threads; this one's wait for nothing that the copy needs.
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            self._live(work, writing)
        os.close(writing)
        self._lines = os.fdopen(reading)
        self.status = None

    def _live(self, work, writing):
        status = 70
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # In a copy of one of pytest-xdist's processes the thread that lives on need not be the main one.
            threading._main_thread = threading.current_thread()
            warnings.simplefilter("ignore")
            work(lambda line: os.write(writing, f"{line}\n".encode()))
            status = 0
        except SystemExit as end:
            status = end.code
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
        finally:
            sys.stdout.flush()
            os._exit(status)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            self.send(signal.SIGKILL)
            self.wait()
        self._lines.close()

    def line(self):
        """The next line, without its end; empty when there is none any more."""
        return self._lines.readline().rstrip("\n")

    def send(self, number):
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self):
        """All lines that are left, and the exit status; negative for a signal."""
        rest = self._lines.read().splitlines()
        _, status = os.waitpid(self.pid, 0)
        self.status = os.waitstatus_to_exitcode(status)
        return rest, self.status
