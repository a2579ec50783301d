"""A server of S3, as a process of this machine: moto's."""

import signal
import socket
import subprocess
import sys
import time

import fsspec
import pytest

SECRETS = ("id-of-nobody", "key-of-nobody")
"""What no log, report or key may have: the id of the access key, and the key."""


def free_port():
    """A port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Server:
    def __init__(self, port, address):
        self.port, self.address = port, address

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        pytest.fail("the server did not start")

    def bucket(self, name):
        fsspec.filesystem("s3").mkdir(name)

    def stop(self):
        self.process.kill()
        self.process.wait()

    def pause(self, seconds):
        """Answer nobody for a while, and then those who wait."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)
