"""Machines to attach: network, process and mount namespaces with an sshd of their own. Real sshd, real links, nothing faked.

Each has its own address, home folder, users, processes and boot id. Nothing of the host is changed: users exist only in
the machine's view of /etc. `cut` and `heal` are the network cable, `reboot` is the power switch.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

PASSWORD = "vm-test-pass"
_numbers = itertools.count()


def is_possible() -> bool:
    return os.geteuid() == 0 and all(shutil.which(x) for x in ("sshd", "ip", "unshare", "ssh-keygen"))


class Machine:
    """One machine. `folder` keeps its disk: its home outlives a reboot."""

    def __init__(
        self, folder: Path, *, sshd: Sequence[str] = (), home_mount: str = "", setup: str = "", user: str = "vm"
    ) -> None:
        number = next(_numbers)
        self.folder = folder
        self.user = user
        self.namespace = f"shunter-{os.getpid()}-{number}"
        self.link = f"sh{os.getpid() % 1000000}x{number}"[:15]
        # A network of four addresses for each machine of each process.
        base = (os.getpid() * 64 + number % 64) % (1 << 16)
        self.address = f"10.{100 + base // 16384}.{base // 64 % 256}.{base % 64 * 4 + 2}"
        self.gateway = self.address.rpartition(".")[0] + "." + str(base % 64 * 4 + 1)
        self.extra = list(sshd)
        self.home_mount = home_mount
        self.setup = setup
        self.key = folder / "id"
        self.home = folder / "home" / user
        self._init: subprocess.Popen[bytes] | None = None

    def up(self) -> Machine:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_disk()
        self._run("ip", "netns", "add", self.namespace)
        self._run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        self._run("ip", "addr", "add", f"{self.gateway}/30", "dev", self.link)
        self._run("ip", "link", "set", self.link, "up")
        self._run("ip", "-n", self.namespace, "addr", "add", f"{self.address}/30", "dev", "eth0")
        self._run("ip", "-n", self.namespace, "link", "set", "eth0", "up")
        self._run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        self.boot()
        return self

    def down(self) -> None:
        self.power_off()
        subprocess.run(["ip", "link", "del", self.link], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True, check=False)

    def boot(self) -> None:
        """Start it, with a boot id of its own."""
        (self.folder / "boot_id").write_text(str(uuid.uuid4()) + "\n")
        script = self.folder / "init.sh"
        setup, mount = self.setup or ":", self.home_mount or ":"
        script.write_text(_INIT.format(f=self.folder, name=self.namespace, home_mount=mount, setup=setup))
        with (self.folder / "init.log").open("wb") as log:
            self._init = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, "unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child",
                 "--propagation", "private", "bash", str(script)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection((self.address, 22), 1).close()
                return
            except OSError:
                if time.monotonic() > until or self._init.poll() is not None:
                    raise AssertionError((self.folder / "init.log").read_text()) from None
                time.sleep(0.02)

    def power_off(self) -> None:
        """All its processes are gone at once: its first one takes the others with it."""
        if self._init is not None:
            for pid in _children(self._init.pid):
                _kill(pid)
            self._init.kill()
            self._init.wait()
            self._init = None

    def reboot(self) -> None:
        self.power_off()
        self.boot()

    def cut(self) -> None:
        self._run("ip", "link", "set", self.link, "down")

    def heal(self) -> None:
        self._run("ip", "link", "set", self.link, "up")

    def inside(self, *command: str) -> str:
        """Run something as root on the machine's network (not among its processes)."""
        return self._run("ip", "netns", "exec", self.namespace, *command)

    def on_it(self, *command: str) -> str:
        """Run something as root that sees the machine's disks."""
        assert self._init is not None
        return self._run("nsenter", "-m", "-t", str(_children(self._init.pid)[0]), *command)

    def route_to(self, other: Machine) -> None:
        """Let this machine reach another through the host, as a door to it."""
        forwards = Path("/proc/sys/net/ipv4/ip_forward")
        if forwards.read_text().strip() != "1":
            forwards.write_text("1")
        self._run("ip", "-n", self.namespace, "route", "replace", "default", "via", self.gateway)
        self._run("ip", "-n", other.namespace, "route", "replace", "default", "via", other.gateway)

    def boot_id(self) -> str:
        return (self.folder / "boot_id").read_text().strip()

    def known_hosts(self) -> Path:
        words = (self.folder / "hostkey.pub").read_text().split()
        file = self.folder / "known_hosts"
        file.write_text(f"{self.address} {words[0]} {words[1]}\n")
        return file

    def fingerprint(self) -> str:
        return self._run("ssh-keygen", "-lf", str(self.folder / "hostkey.pub")).split()[1]

    def options(self, **more: object) -> dict[str, object]:
        """What attaches it by its key."""
        return {
            "address": self.address, "username": self.user, "private_key_file": str(self.key),
            "known_hosts_file": str(self.known_hosts()), **more,
        }  # fmt: skip

    def processes(self, text: str) -> list[int]:
        """Processes of this machine whose command line has `text`."""
        found = []
        for pid in self._run("ip", "netns", "pids", self.namespace).split():
            try:
                if text.encode() in Path("/proc", pid, "cmdline").read_bytes():
                    found.append(int(pid))
            except OSError:
                continue
        return found

    def _write_disk(self) -> None:
        etc = self.folder / "etc"
        for path in (self.home / ".ssh", self.folder / "run"):
            path.mkdir(parents=True, exist_ok=True)
        # All of it: a single file bound over /etc/passwd falls off when somebody on the host adds a user.
        self._run("cp", "-aT", "/etc", str(etc))
        self.folder.chmod(0o755)
        (self.folder / "home").chmod(0o755)
        for name, host in (("id", self.key), ("hostkey", self.folder / "hostkey")):
            if not host.exists():
                self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(host))
        (self.home / ".ssh" / "authorized_keys").write_text((self.folder / "id.pub").read_text())
        uid = 23000
        hashed = self._run("openssl", "passwd", "-6", PASSWORD).strip()
        (etc / "passwd").write_text(
            Path("/etc/passwd").read_text() + f"{self.user}:x:{uid}:{uid}::/home/{self.user}:/bin/bash\n"
        )
        (etc / "group").write_text(Path("/etc/group").read_text() + f"{self.user}:x:{uid}:\n")
        (etc / "shadow").write_text(Path("/etc/shadow").read_text() + f"{self.user}:{hashed}:19000:0:99999:7:::\n")
        (etc / "shadow").chmod(0o640)
        for path in (self.home, self.home / ".ssh", self.home / ".ssh" / "authorized_keys"):
            os.chown(path, uid, uid)
        (self.home / ".ssh").chmod(0o700)
        lines = [*self.extra, *_SSHD]
        if not any(line.startswith("Subsystem") for line in self.extra):
            lines.append("Subsystem sftp internal-sftp")
        (self.folder / "sshd_config").write_text("\n".join(lines).format(f=self.folder, address=self.address) + "\n")

    def _run(self, *command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


#: The first value of an option counts, so what a test adds stands before these.
_SSHD = (
    "Port 22", "ListenAddress {address}", "HostKey {f}/hostkey", "PidFile none", "PasswordAuthentication yes",
    "KbdInteractiveAuthentication no", "PermitRootLogin no", "UsePAM no", "UseDNS no", "MaxStartups 300", "MaxSessions 300",
)  # fmt: skip

_INIT = """
set -e
hostname {name}
mount -t proc proc /proc
mount --bind {f}/boot_id /proc/sys/kernel/random/boot_id
mount --bind {f}/etc /etc
mount --bind {f}/home /home
mount --bind {f}/run /run
mkdir -p /run/sshd
mkdir -p -m 1777 /tmp/shunter-gpus
mount -t tmpfs -o mode=1777 tmpfs /tmp/shunter-gpus
{home_mount}
{setup}
exec /usr/sbin/sshd -D -e -f {f}/sshd_config
"""


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def seed() -> int:
    return secrets.randbelow(1 << 30)
