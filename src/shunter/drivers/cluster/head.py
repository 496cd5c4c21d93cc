"""The head as a process: Ray's store, scheduler and autoscaler, and the keeper's hand on the groups.

It may die at any moment: what it knows is stored, the keeper starts it again, and nodes wait for it. It looks after the
keeper in turn, so that one of them is always there while there is work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from shunter.drivers.cluster import keeping
from shunter.drivers.cluster.autoscaler_file import write_autoscaler
from shunter.drivers.cluster.folder import ClusterFolder, process_record
from shunter.drivers.cluster.lines import Answer, Request, serve
from shunter.drivers.cluster.ray_engine import Groups, HeadNode, check_version
from shunter.node import contract

LOOK_SECONDS = 1.0
WAIT_SECONDS = 2.0


def main(arguments: list[str]) -> int:
    folder = ClusterFolder(Path(arguments[0]))
    check_version()
    contract.write_whole(str(folder.path / "head.json"), json.dumps(process_record(os.getpid())).encode())
    write_autoscaler(folder)
    head = HeadNode(folder.place(), str(folder.autoscaler_file), folder.open_file.touch)
    code = 1
    try:
        code = asyncio.run(Head(folder, head).serve())
    finally:
        head.stop()
        os._exit(code)


class Head:
    def __init__(self, folder: ClusterFolder, node: HeadNode) -> None:
        self.folder = folder
        self.node = node
        self.groups = Groups(folder.place())
        self._threads = ThreadPoolExecutor(32)
        self._stop = asyncio.Event()

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        server = await serve(self.folder.path / "head.sock", self.answer)
        async with server:
            while not self._stop.is_set():
                if not await asyncio.to_thread(self.node.look_after):
                    print("a part of the head died", file=sys.stderr, flush=True)
                    return 1
                keeping.ensure(self.folder)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), LOOK_SECONDS)
        return 0

    async def answer(self, request: Request) -> Answer:
        verb = {"create": self._create, "wait": self._wait, "remove": self._remove, "look": self._look}.get(
            request["do"]
        )
        if verb is not None:
            return await asyncio.get_running_loop().run_in_executor(self._threads, verb, request)
        if request["do"] == "stop":
            self._stop.set()
        return {"pid": os.getpid()}

    def _create(self, request: Request) -> Answer:
        self.groups.create(request["name"], request["bundles"])
        return {}

    def _wait(self, request: Request) -> Answer:
        group = self.groups.find(request["name"])
        if group is None:
            return {"nodes": None, "missing": True}
        return {"nodes": self.groups.wait(group, WAIT_SECONDS)}

    def _remove(self, request: Request) -> Answer:
        self.groups.remove(request["name"])
        return {}

    def _look(self, _: Request) -> Answer:
        found: dict[str, Any] = {"nodes": self.groups.nodes(), "groups": self.groups.names()}
        return found
