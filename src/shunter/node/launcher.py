"""One run on one node: claims the launch, writes out the snapshot, starts the script, watches it, brings everything home.

Forked from the warm parent, or started fresh where none can live. If it dies, another adopts the attempt: the script
writes straight into files, so nothing breaks with its launcher.
"""

from __future__ import annotations

import json
import os
import resource  # wait4 would import it, once for each fork
import select
import signal
import sys
import time

from shunter.node import contract, distributed, exits, provide, room, script, workfolder
from shunter.node.mlflow_relay import MlflowRelay, port_of
from shunter.node.monitor.cpu import Sampler, descendants
from shunter.node.pusher import Pusher, patience
from shunter.node.relay import Relay
from shunter.node.spool import Spool, Unwanted
from shunter.node.spool import say as say_event
from shunter.node.variables import variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from shunter.node.environments import Prepared
    from shunter.node.environments.container import Box
    from shunter.node.home import Home

SAMPLE_SECONDS = 1.0
#: A script that ends within this time is brought home by one report; for a longer one pushing begins.
SHORT_SECONDS = 0.1


def run(folder, way=None):
    # type: (str, Optional[Home]) -> Optional[Home]
    """Do the launch in `folder`, unless somebody has taken it; `way` is the connection of the launch before.

    Returns the connection when this process is as good as new, and may do another launch.
    """
    pid = os.getpid()
    if not contract.take(folder, "launcher %d %d %s" % (pid, contract.start_time(pid), contract.boot_id())):
        return None
    job = contract.read_json(os.path.join(folder, "job.json"))
    assert job is not None
    one = Launcher(folder, job)
    if way is not None:
        one.spool.home.follow(way)
    one.run()
    one.close()
    return one.spool.home if one.is_as_new() else None


def adopt(folder):
    # type: (str) -> None
    """Go on with a launch whose launcher died."""
    claim = contract.Claim.read(folder)
    job = contract.read_json(os.path.join(folder, "job.json"))
    if claim is None or job is None or claim.launcher_alive():
        return
    pid = os.getpid()
    contract.add_to_claim(folder, "launcher %d %d %s" % (pid, contract.start_time(pid), contract.boot_id()))
    Launcher(folder, job).adopt(claim)


class Launcher:
    def __init__(self, folder, job):
        # type: (str, Dict[str, Any]) -> None
        self.folder = folder
        self.job = job
        self.work = os.path.join(folder, "work")
        self.log = os.path.join(folder, "log")
        self.root = os.path.dirname(os.path.dirname(folder))
        self.spool = Spool(folder, job)
        self.began = time.time()
        self.asked = None  # type: Optional[str]
        self.oom_before = script.oom_kills_before()
        self._wake_read, self._wake_write = os.pipe()
        self.given = {}  # type: Dict[str, str]
        self.box = None  # type: Optional[Box]
        self.relay = None  # type: Optional[Relay]
        self.mlflow = None  # type: Optional[MlflowRelay]
        self.pusher = None  # type: Optional[Pusher]
        self.checkpoints = None  # type: Optional[Any]

    # The life of a launch, in order.

    def run(self) -> None:
        self._listen()
        if self._cancel_asked():
            return self._never_started({"kind": "canceled", "message": "Canceled before the script was started."})
        try:
            room.keep(self.root)
            workfolder.write_out(self.job["layout"], self.work)
        except OSError as error:
            words = script.disk_full(self.folder) if error.errno in (28, 122) else {
                "code": "snapshot_unwritable", "hint": "", "message": "The snapshot could not be written out: " + str(error),
            }  # fmt: skip
            return self._never_started(dict(words, kind="failed"))
        prepared = None
        if self.job.get("environment"):
            prepared = self._prepare()
            if prepared is None:
                return None
        try:
            self._provide()
        except provide.NotProvided as error:
            return self._never_started(dict(error.words, kind="failed"))
        except OSError as error:
            return self._never_started(dict(script.could_not_start(error, [self.folder], self.folder), kind="failed"))
        before = prepared.argv_prefix if prepared is not None else [self.job["interpreter"]]
        argv = [*before, self.job["script"], *self.job["arguments"]]
        env = variables(
            self.job, self.folder, self.job.get("inherit_env", True) and self.box is None,
            prepared.env if prepared is not None else {}, self.mlflow.variables() if self.mlflow is not None else {}, self.given,
        )  # fmt: skip
        if distributed.is_distributed(self.job):
            env.update(distributed.environment(self.job))
            argv = distributed.command(self.job, argv, self.folder, self.work, before[0] if self.box is not None else "")
            if self.box is not None:
                self.box.mounts += distributed.mounts()
        if self.box is not None:
            self.box.mounts += provide.mounts(self.folder, self.given)
            argv, env = self.box.command(argv, env)
        if self._cancel_asked():
            return self._never_started({"kind": "canceled", "message": "Canceled before the script was started."})
        if self._node_is_gone():
            why = "Its node left the cluster before the script was started."
            return self._never_started({"kind": "lost", "code": "node_lost", "message": why})
        contract.add_to_claim(self.folder, "starting")
        self.began = time.time()
        try:
            pid = script.start(argv, env, self.work, self.log)
        except OSError as error:
            return self._never_started(dict(script.could_not_start(error, argv, self.folder), kind="failed"))
        contract.add_to_claim(self.folder, "script %d %d" % (pid, contract.start_time(pid)))
        self._hold_gpus()
        self.spool.mark({"started": {"at": self.began, "pid": pid}})
        self._listen_to_script()
        sampler = Sampler(pid, os.path.join(self.folder, "usage"))
        status, rusage = self._watch(pid, sampler)
        self._ended(pid, status, sampler.summary(rusage))
        return None

    def is_as_new(self) -> bool:
        """Has nothing been started, opened or learned in this process that the next launch should not find?"""
        opened = any(one is not None and one.is_open for one in (self.relay, self.mlflow))
        return not (opened or self.pusher or self.checkpoints or self.given or self.job.get("environment"))

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def adopt(self, claim):
        # type: (contract.Claim) -> None
        """The script may be running, over, or never have been started. Its wait status, if any, comes from the parent."""
        self._listen()
        outcome = contract.read_json(os.path.join(self.folder, "outcome"))
        if outcome is not None:
            return self._bring_home(outcome)
        if not claim.starting:
            return None  # the driver says Gone, and that the script never ran: dispatch starts a new attempt
        pid, started = claim.script or (0, 0)
        if not pid:
            found = contract.find_processes(self.job["id"])
            pid = found[0] if found else 0
            started = contract.start_time(pid) if pid else 0
            if pid:
                contract.add_to_claim(self.folder, "script %d %d" % (pid, started))
        self._hold_gpus()
        self.spool.mark({"started": {"at": self.began, "pid": pid}})
        sampler = Sampler(pid, os.path.join(self.folder, "usage"))
        self._open_relay(pid)
        self._listen_to_script()
        self._adopt_box()
        if pid:
            self._watch_orphan(pid, started, sampler)
        if self.box is not None:
            self.box.remove()
        found_status = exits.wait_for_status(self.folder, pid, started)
        if found_status is None:
            self._end_with({
                "kind": "failed", "exit_code": None, "signal": None, "code": "outcome_unknown",
                "message": "The script's launcher was killed, and the script ended without anybody to see its exit status.",
                "hint": "Its log and outputs are kept. `shunter run rerun` starts it again.",
            }, sampler.summary())  # fmt: skip
            return None
        self._ended(pid, found_status, sampler.summary())
        return None

    def _hold_gpus(self) -> None:
        """The script and whoever looks after it hold the GPUs that it was given: other servers must see that if one dies."""
        if os.path.exists(os.path.join(self.folder, "gpus")):
            from shunter.node import gpus

            gpus.hold(self.root, os.path.basename(self.folder))

    def _provide(self) -> None:
        """Bring what the script was given. Data may take long: the server hears of it meanwhile. Raises NotProvided."""
        pushing = None  # type: Optional[Pusher]
        if self.job.get("inputs") or self.job.get("restore"):
            what = "Bringing its inputs." if self.job.get("inputs") else "Bringing its checkpoints."
            self.spool.mark({"preparing": {"at": time.time(), "what": what}})
            pushing = Pusher(self.spool)
        try:
            self.given = provide.before_start(self.folder, self.job, patience, self._cancel_asked)
        finally:
            if pushing is not None:
                pushing.stop()
        self._open_relay()

    def _prepare(self):
        # type: () -> Optional[Prepared]
        """Make the script's environment ready. None when that failed or was cancelled: the outcome is then written."""
        from shunter.node import environments

        began = time.time()
        pushing = []  # type: List[Pusher]

        def say(what):
            # type: (str) -> None
            self.spool.mark({"preparing": {"at": time.time(), "what": what}})
            if not pushing:
                pushing.append(Pusher(self.spool))

        words = {"kind": "canceled", "message": "Canceled while its environment was being prepared."}
        prepared = None
        try:
            prepared = environments.prepare(self.job["environment"], self.folder, self.root, say, self._cancel_asked, self.job)
        except environments.Canceled:
            pass
        except environments.Unavailable as error:
            words = error.words()
        except OSError as error:
            words = script.disk_full(self.folder) if error.errno in (28, 122) else {
                "code": "environment_failed", "hint": "",
                "message": "The environment could not be prepared: " + str(error),
            }  # fmt: skip
            words["kind"] = "failed"
        finally:
            for one in pushing:
                one.stop()
        if prepared is None:
            self._never_started(words)
            return None
        self.box = prepared.wrap
        from shunter.node.environments.facts import host_facts

        seconds = round(time.time() - began, 3)
        say_event(self.folder, "environment", seconds=seconds, host=host_facts(), environment=prepared.facts)
        return prepared

    def _adopt_box(self) -> None:
        """The container of a launch whose launcher died: it has to be ended and removed as any other."""
        spec = self.job.get("environment")
        if not spec or spec.get("kind") != "container":
            return
        from shunter.node import environments
        from shunter.node.environments.container import Box

        try:
            self.box = Box.adopt(environments.Job(spec, self.folder, self.root, lambda what: None, self._cancel_asked, self.job))
        except (environments.Unavailable, OSError):
            pass

    # Watching

    def _listen(self) -> None:
        """Signals only wake the loop: SIGCHLD when the script ended, SIGUSR1 when the driver left a word (cancel)."""
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, lambda *_: None)

    def _watch(self, pid, sampler):
        # type: (int, Sampler) -> Tuple[int, resource.struct_rusage]
        """Until the script ends. Its other descendants that come to us as their reaper are waited for on the way."""
        pushing = None  # type: Optional[Pusher]
        deadline = self._deadline()
        kill_at = 0.0
        next_sample = sampler.began + SHORT_SECONDS / 2
        while True:
            while True:
                try:
                    ended = exits.next_ended()
                except ChildProcessError:
                    raise SystemExit(1) from None
                if ended is None:
                    break
                if ended[0] == pid:
                    exits.write_exit(self.folder, ended[1])
                _, status, rusage = os.wait4(ended[0], 0)
                if ended[0] == pid:
                    if pushing is not None:
                        pushing.stop()
                    return status, rusage
            now = time.monotonic()
            if now >= next_sample:
                if self.box is not None:
                    sampler.pid = self.box.pid() or pid
                sampler.sample()
                next_sample = now + SAMPLE_SECONDS
            if pushing is None and now - sampler.began >= SHORT_SECONDS:
                pushing = self.pusher = Pusher(self.spool)
            kill_at = self._consider_ending(pid, now, deadline, kill_at)
            self._rest(min(SHORT_SECONDS if pushing is None else 0.25, max(0.0, next_sample - now) + 0.001))

    def _watch_orphan(self, pid, started, sampler):
        # type: (int, int, Sampler) -> None
        pushing = self.pusher = Pusher(self.spool)
        deadline = self._deadline()
        kill_at = 0.0
        while contract.is_alive(pid, started):
            sampler.sample()
            kill_at = self._consider_ending(pid, time.monotonic(), deadline, kill_at)
            self._rest(0.2)
        pushing.stop()

    def _open_relay(self, script_pid=0):
        # type: (int) -> None
        """Listen for the script's questions. A node that cannot is one without answers, not without runs."""
        try:
            self.relay = Relay(self.folder, self.job, self.spool, self._hurry)
            self.mlflow = MlflowRelay(self.folder, self.job, self.relay, port_of(script_pid) if script_pid else 0)
        except OSError:
            pass

    def _listen_to_script(self) -> None:
        try:
            if self.relay is not None:
                self.relay.listen()
        except OSError:
            self.relay = None

    def _hurry(self) -> None:
        if self.pusher is not None:
            self.pusher.hurry()

    def _rest(self, seconds):
        # type: (float) -> None
        """Sleep until a signal, a first call of the script, or for `seconds`. Look after checkpoints on the way."""
        listening = [one for one in (self.relay, self.mlflow) if one is not None and not one.is_open]  # type: List[Any]
        ready = select.select([self._wake_read, *listening], [], [], seconds)[0]
        if self._wake_read in ready:
            os.read(self._wake_read, 512)
        for one in listening:
            if one in ready:
                one.open_up()
        if self.checkpoints is None and self.pusher is not None and provide.has_checkpoints(self.folder):
            self.checkpoints = provide.checkpoint_pusher(self.folder, self.job, self.spool.hear, patience)
            self.checkpoints.start()

    def _consider_ending(self, pid, now, deadline, kill_at):
        # type: (int, float, float, float) -> float
        """End the script when it was cancelled, has run too long, or its lease is over. Returns when to kill."""
        if not kill_at:
            lease = self.job.get("lease_seconds")
            if self._cancel_asked():
                self.asked = "cancel"
            elif now >= deadline:
                self.asked = "max_duration"
            elif lease and now - self.spool.heard_at > lease:
                self.asked = "lease"
            elif self._node_is_gone():
                self.asked = "node"
                script.end(descendants(pid), signal.SIGKILL)  # a machine that dies gives no grace either
                return now
            else:
                return 0.0
            script.end(descendants(pid), signal.SIGTERM)
            return now + float(self.job.get("grace_seconds", 10))
        if now >= kill_at:
            script.end(descendants(pid), signal.SIGKILL)
            if self.box is not None:
                self.box.remove()
        return kill_at

    def _cancel_asked(self) -> bool:
        return self.spool.canceled or os.path.exists(os.path.join(self.folder, "cancel"))

    def _node_is_gone(self) -> bool:
        """On a cluster, the process that stands for this node: nothing runs on without it."""
        watch = self.job.get("watch")
        return watch is not None and not contract.is_alive(int(watch[0]), int(watch[1]))

    def _deadline(self) -> float:
        limit = self.job.get("max_duration_seconds")
        return time.monotonic() + float(limit) if limit else float("inf")

    # Ending

    def _ended(self, pid, status, usage):
        # type: (int, int, Dict[str, Any]) -> None
        trouble = None
        if self.box is not None:
            trouble = None if self.asked else self.box.trouble(status, self.log)
            status = self.box.ended(status)
        if pid:
            script.sweep(pid)
        facts = {"max_duration_seconds": self.job.get("max_duration_seconds"), "peak_mib": usage["working_set_bytes_peak"] >> 20}
        words = script.describe_end(status, self.asked, self.oom_before, self.log, facts)
        words.update(trouble or {})
        if words["code"] == "script_failed" and script.is_full(self.folder):
            words.update(script.disk_full(self.folder))
        if words["code"] in ("script_failed", "killed_by_signal") and "lock_id" in (self.job.get("environment") or {}):
            words = self._blame_environment(words)
        if words["kind"] == "completed" and os.path.exists(os.path.join(self.folder, "failed")):
            words = dict(words, **provide.said_failed(self.folder))
        self._end_with(provide.hide(words, self.given), usage)

    def _blame_environment(self, words):
        # type: (Dict[str, Any]) -> Dict[str, Any]
        """A file that was cut short in a package fails the script: then that is said too, and the next run builds anew."""
        from shunter.node.environments.built import after_failure

        found = after_failure()
        if not found:
            return words
        why = ". Of its environment on the node these packages are damaged: " + found["bad"] + "."
        return dict(words, code=found["code"], hint=found["hint"], message=words["message"].rstrip(". ") + why)

    def _never_started(self, words):
        # type: (Dict[str, Any]) -> None
        self._end_with(dict({"exit_code": None, "signal": None, "code": "", "hint": ""}, **words), {}, started=False)

    def _end_with(self, words, usage, started=True):
        # type: (Dict[str, Any], Dict[str, Any], bool) -> None
        """The outcome on this node first, then home."""
        outcome = dict(words, started_at=self.began if started else None, ended_at=time.time(), usage=usage)
        data = json.dumps(outcome).encode()
        tries = 0
        while True:
            try:
                # Outlives kill -9 as it is; `_bring_home` syncs it when the server does not take it at once.
                contract.write_whole(os.path.join(self.folder, "outcome"), data)
                break
            except OSError:  # a full disk: the room kept for this is used; failing that, the outcome waits for room
                if not room.give(self.root):
                    tries += 1
                    time.sleep(patience(tries))
        self._bring_home(outcome)

    def _bring_home(self, outcome):
        # type: (Dict[str, Any]) -> None
        self.spool.over = True
        try:
            if provide.has_checkpoints(self.folder):
                last = self.checkpoints or provide.checkpoint_pusher(self.folder, self.job, self.spool.hear, patience)
                killed = outcome.get("signal") is not None or outcome.get("code") == "outcome_unknown"
                last.finish(lambda: False, killed=killed)
            if next(self.spool.uploads(), None) is not None:
                self.spool.push_all(None, patience)  # an upload may be for a child that the server has yet to hear of
                self.spool.push_uploads(patience)
            for top in ("outputs", "logs"):
                if next(workfolder.kept_files(self.work, top), None) is not None:
                    self.spool.mark({"ended": {"at": time.time()}})
                    self.spool.push_all(None, patience)
                    self.spool.send_files(top, patience)
            self.spool.push_all({"outcome": outcome}, self._patience_with_server)
        except Unwanted:
            pass
        for one in (self.relay, self.mlflow):
            if one is not None:
                one.close()
        # The warm parent clears the work folder away when nothing runs: removing it costs more than starting a script.
        os.close(os.open(os.path.join(self.folder, "done"), os.O_WRONLY | os.O_CREAT, 0o600))

    def _patience_with_server(self, tries):
        # type: (int) -> float
        """The server is away: from now on the outcome must outlive a power cut, too."""
        if tries == 1:
            fd = os.open(os.path.join(self.folder, "outcome"), os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        return patience(tries)


if __name__ == "__main__":
    # The lean fresh launcher, for machines without a warm parent: python launcher.py FOLDER
    run(sys.argv[1])
