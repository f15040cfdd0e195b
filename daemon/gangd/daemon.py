# SPDX-License-Identifier: Apache-2.0
"""Wires the stages together, and ends them. No policy and no kernel in here.

    libvirt ─▶ source ─▶ Following ─▶ State ─▶ make_plan ─▶ Plan ─▶ Reconciling ─▶ host.reconcile
                                                   ▲
               host.sample ─▶ Measuring ─▶ Evidence, Snapshot ─▶ Answers ─▶ D-Bus, /metrics

Each of the three loops owns its state (loops.py); whoever controls the daemon talks to Answers (answers.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from gangd import handover, logs
from gangd.answers import Answers
from gangd.config import Config, merged
from gangd.errors import GangError
from gangd.events.sources import source
from gangd.host_thread import Host
from gangd.loops import Following, Measuring, Reconciling
from gangd.model.profile import check_rules
from gangd.planner import load_policies

log = logging.getLogger("gangd")


class Daemon:
    """config: what is in force. answers: to whoever controls it. news: there is something to show; whoever
    shows it clears it. before: descriptors of a scheduler that the gangd before left loaded."""

    def __init__(self, config: Config, root: Path = Path("/"), before: Sequence[int] = ()) -> None:
        self.config, self.news = config, asyncio.Event()
        self._policies = load_policies()
        rules = check_rules(config.rules, self._policies)
        self.host = Host(config, root, before)
        self._source = source(
            config.daemon, root, self.host.unpinned, lambda guest: self._following.rules.wants(guest)
        )
        self._following = Following(self._source, rules, self.news)
        self._measuring = Measuring(self.host, self._following, config.daemon.measure_interval, self.news)
        self._reconciling = Reconciling(
            *(config, self._policies, self.host, self._following, self._measuring, self.news),
            handover.take(Path(config.daemon.state_dir), self._policies),
        )
        self.answers = Answers(
            *(self._source, self.host, self._policies),
            *(self._following, self._measuring, self._reconciling),
            lambda: self.config,
        )

    async def follow(self) -> None:
        """Turn events into changes of the host, until cancelled."""
        await self._measuring.read_parts()  # policies are told whether there is a scheduler
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._following.run(self._reconciling))
            tasks.create_task(self._reconciling.run())
            tasks.create_task(self._measuring.run(self._reconciling))
            tasks.create_task(self.answers.watch())

    async def stop(self) -> None:
        """Put the host back as it was found and unload everything."""
        # For good: undoing raises events, too, and nothing may be done about them any more.
        await self._reconciling.alone.acquire()
        report = await self.host.undo()
        for failure in report.failures:
            log.error("while stopping: %s", failure, extra=self._following.about("failure", failure))
        await self.host.close()

    async def hand_over(self) -> tuple[int, ...]:
        """Stop, and leave everything as it is to the gangd that comes next: what Host.hand_over() returns and
        raises."""
        await self._reconciling.alone.acquire()
        try:
            return await self.host.hand_over(self._reconciling.plan)
        except GangError:
            self._reconciling.alone.release()
            raise

    def reload(self, found: Config) -> None:
        """Take up what a running gangd can of another configuration, and say what it cannot.

        Raises InvalidConfig, and then nothing is taken up.
        """
        settings, taken, kept = merged(self.config, found)
        rules = check_rules(settings.rules, self._policies)
        self.config = settings
        self._source.set_interval(settings.daemon.interval)
        self.host.set_turn(settings.scheduler.turn_us)
        self._following.set_rules(rules)
        self._measuring.set_interval(settings.daemon.measure_interval)
        self._reconciling.set_config(settings)
        logs.reloaded(log, taken, kept)

    async def alive(self) -> str:
        """Return the number of gangs and the backend's state in one phrase, once the host thread has
        answered: the watchdog's proof of life.

        If the kernel ejected the scheduler, as it does when a CPU comes or goes, have it loaded again, for
        the CPUs that there are then.
        """
        if report := await self.host.ejected():
            await self._measuring.read_parts()
            for line in (self._measuring.backend.reason, *report):
                log.warning("%s", line, extra=logs.about("ejected"))
            self._reconciling.expire_all()
            self._following.read_again()
        backend = self._measuring.backend
        return f"{len(self._reconciling.plan.scheduled)} gangs; {backend.name}: {backend.reason}"
