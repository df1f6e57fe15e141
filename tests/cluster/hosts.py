"""Hosts as network namespaces on one bridge, with separate process namespaces. Requires root."""

import contextlib
import os
import pathlib
import random
import shutil
import socket
import subprocess
import time

PATIENCE = 60
LOOPBACK = "127.0.0.1"


def free_port():
    """Returns a free port below the kernel's range for outgoing connections, so that no other test's connection takes it.
    """
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


def has(*programs):
    return all(shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin") for program in programs)


def namespaces_work():
    """Returns whether hosts can be created; containers often do not allow it."""
    if os.geteuid() != 0 or not has("ip", "nsenter"):
        return False
    hosts = Hosts(1)
    try:
        with hosts:
            return True
    except subprocess.CalledProcessError:
        hosts.__exit__()
        return False


class OwnProcesses:
    """A process namespace, as on a separate host. `enter` runs a command in it."""

    def __init__(self, enter):
        words = [*enter, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "infinity"]
        self.holder = subprocess.Popen(words)
        children = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        end = time.monotonic() + PATIENCE
        while not (first := [child for child in children.read_text().split() if self.sleeps(child)]):
            if time.monotonic() > end:
                self.end()
                raise TimeoutError("no processes of its own")
            time.sleep(0.01)
        spaces = f"/proc/{first[0]}/ns"
        self.enter = [*enter, "nsenter", f"--pid={spaces}/pid", f"--mount={spaces}/mnt"]

    @staticmethod
    def sleeps(process):
        """Whether this is the last command of `enter`, not one that it runs before."""
        try:
            return pathlib.Path(f"/proc/{process}/cmdline").read_bytes() == b"sleep\0infinity\0"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def end(self):
        self.holder.kill()
        self.holder.wait()


class Hosts:
    """Network namespaces on one bridge: 10.77.0.1, 10.77.0.2, ..."""

    def __init__(self, count):
        prefix = f"ch{os.getpid()}"
        self.switch = f"{prefix}sw"
        self.names = [f"{prefix}h{index}" for index in range(count)]

    def __enter__(self):
        self.ip("netns", "add", self.switch)
        self.ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        self.ip("-n", self.switch, "link", "set", "br0", "up")
        for index, name in enumerate(self.names):
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
            self.ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{index}", "netns", self.switch)
            self.ip("-n", self.switch, "link", "set", f"port{index}", "master", "br0", "up")
            self.ip("-n", name, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
            self.ip("-n", name, "link", "set", "eth0", "up")
        return self

    @staticmethod
    def address(index):
        return f"10.77.0.{index + 1}"

    def enter(self, index):
        return ["nsenter", f"--net=/run/netns/{self.names[index]}"]

    def throttle(self, rate):
        """Limits the sending rate of each host, for example to 100mbit."""
        for name in self.names:
            self.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb", "latency",
                      "400ms"])

    def sent_bytes(self, index):
        """Returns the bytes that the host has sent."""
        table = subprocess.run([*self.enter(index), "cat", "/proc/self/net/dev"], check=True, capture_output=True, text=True)
        return next(int(line.split(":")[1].split()[8]) for line in table.stdout.splitlines() if "eth0:" in line)

    def listeners(self, index):
        """Returns the addresses of listening sockets."""
        table = subprocess.run([*self.enter(index), "cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True)
        rows = [line.split() for line in table.stdout.splitlines()]
        return {row[1].split(":")[0] for row in rows if len(row) > 3 and row[3] == "0A"}

    def ip(self, *words):
        self.run(["ip", *words])

    @staticmethod
    def run(words):
        subprocess.run(words, check=True, capture_output=True)

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
