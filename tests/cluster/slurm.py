"""A SLURM cluster for one test: two nodes on this host, or on network namespaces with separate process namespaces."""

import os
import pathlib
import shutil
import socket
import subprocess
import time

from hosts import LOOPBACK, PATIENCE, Hosts, OwnProcesses, free_port

SETTINGS = """ClusterName=test
SlurmctldHost={master}({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/ctld.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/spool.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmctldParameters=node_reg_mem_percent=1
ReturnToService=2
KillWait=5
SchedulerParameters=sched_interval=1,bf_interval=1
"""  # A requeued job waits until its credential expires (5 s instead of 120 s), and for the scheduler's next turn


class Place:
    """The host of a daemon: this host."""

    def __init__(self, name=None, address=LOOPBACK):
        self.name = name or socket.gethostname()
        self.address = address
        self.enter = []

    def end(self):
        pass


class OwnHost(Place):
    """A network namespace with its own host name, process namespace and hosts file `names`."""

    def __init__(self, hosts, index, name, names):
        super().__init__(name, hosts.address(index))
        named = [*hosts.enter(index), "unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh"]
        self.processes = OwnProcesses(named)
        self.enter = self.processes.enter
        subprocess.run([*self.enter, "mount", "--bind", str(names), "/etc/hosts"], check=True)

    def end(self):
        self.processes.end()


class Slurm:
    """A cluster of two nodes, run by this user. With `own_hosts`, each node and the submitting machine is a separate
    host."""

    NODES = ("n0", "n1")

    def __init__(self, folder, own_hosts=False):
        self.folder = folder
        self.configuration = str(folder / "slurm.conf")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        self.environment["SLURM_CONF"] = self.configuration
        self.daemons = []
        self.has_started = False
        self.hosts = Hosts(len(self.NODES) + 1) if own_hosts else None
        self.places = []

    def start_all(self):
        self.make_places()
        folder, master = self.folder, self.places[-1]
        settings = SETTINGS.format(master=master.name, address=master.address, port=free_port(), folder=folder,
                                   user=os.environ.get("USER", "root"))
        for name, place in zip(self.NODES, self.places):
            settings += (f"NodeName={name} NodeHostname={place.name} NodeAddr={place.address} Port={free_port()} CPUs=8 "
                         "RealMemory=1000\n")
        settings += "PartitionName=main Nodes=ALL Default=YES State=UP\n"
        pathlib.Path(self.configuration).write_text(settings)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (folder / "munge").mkdir(mode=0o755)
        (folder / "state").mkdir()
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        folder.chmod(0o755)
        munge = folder / "munge"
        self.start([], "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
                   f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        self.wait_for("munge", (munge / "socket").exists)
        self.start(master.enter, "slurmctld", "-D", "-f", self.configuration, "-c")
        for name, place in zip(self.NODES, self.places):
            self.start(place.enter, "slurmd", "-D", "-f", self.configuration, "-N", name)
        self.has_started = True
        self.await_idle()

    def make_places(self):
        if not self.hosts:
            self.places = [Place()] * (len(self.NODES) + 1)
            return
        self.hosts.__enter__()
        names = self.folder / "hosts"
        every = [*self.NODES, "login"]
        names.write_text("127.0.0.1 localhost\n" + "".join(f"{self.hosts.address(index)} {name}\n"
                                                            for index, name in enumerate(every)))
        for index, name in enumerate(every):
            self.places.append(OwnHost(self.hosts, index, name, names))

    def start(self, enter, program, *arguments):
        path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")
        daemon = subprocess.Popen([*enter, path, *arguments], env=self.environment, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        self.daemons.append((daemon, not enter))

    @staticmethod
    def wait_for(what, is_there, patience=PATIENCE):
        end = time.monotonic() + patience
        while not is_there():
            if time.monotonic() > end:
                raise TimeoutError(f"not there after {patience} s: {what}")
            time.sleep(0.05)

    def words(self, *words):
        """Returns a SLURM command for the submitting machine."""
        return [*self.places[-1].enter, *words]

    def ask(self, *words):
        """Returns the output of a SLURM command. Repeats it while it fails: a busy controller may answer too late."""
        end = time.monotonic() + PATIENCE
        while (result := self.run(*words)).returncode:
            if time.monotonic() > end:
                raise TimeoutError(f"failed for {PATIENCE} s: {' '.join(words)}: {result.stderr}")
            time.sleep(0.05)
        return result.stdout

    def run(self, *words):
        return subprocess.run(self.words(*words), env=self.environment, capture_output=True, text=True)

    def await_idle(self):
        self.wait_for("idle nodes", lambda: self.ask("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * len(self.NODES))

    def processes(self, node, *names):
        """Returns the variables, by process id, of running processes of this cluster on a node with one of these names.
        """
        script = ('for each in /proc/[0-9]*; do read -r name < $each/comm && read -r _ _ state _ < $each/stat && '
                  'echo "${each#/proc/} $name $state $(tr "\\0" " " < $each/environ)"; done 2>/dev/null')
        listed = subprocess.run([*self.places[node].enter, "sh", "-c", script], capture_output=True, text=True).stdout
        rows = [line.split(" ") for line in listed.splitlines()]
        return {row[0]: row[3:] for row in rows
                if row[1] in names and row[2] not in "ZX" and f"SLURM_CONF={self.configuration}" in row}

    def kill(self, node, signal, processes):
        subprocess.run([*self.places[node].enter, "kill", f"-{signal}", *processes], check=True)

    def stop(self):
        """Ends all jobs and daemons."""
        if self.has_started:  # Otherwise these commands wait for minutes
            self.run("sh", "-c", "scancel $(squeue -h -o %A)")
        if self.has_started and not self.hosts:
            try:
                self.wait_for("the end of all steps", lambda: not self.processes(0, "slurmstepd"), 20)
            except TimeoutError:
                self.kill(0, "KILL", self.processes(0, "slurmstepd"))
        for place in self.places:
            place.end()
        for daemon, is_here in reversed(self.daemons):  # The others end with their hosts
            if is_here:
                daemon.terminate()
        for daemon, _ in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        if self.hosts:
            self.hosts.__exit__()
