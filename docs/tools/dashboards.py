# SPDX-License-Identifier: Apache-2.0
"""Write the Grafana dashboards of docs/monitoring/grafana, by Grafana's own typed builders.

The queries use metrics of docs/metrics.md and the recording rules; tests/host/system/test_dashboards.py asks
each of a Prometheus.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, GridPos, VariableRefresh
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER = Path(__file__).resolve().parents[2] / "docs/monitoring/grafana"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH, HEIGHT = 24, 8
HOSTS = 'instance=~"$instance"'
GUEST = 'instance=~"$instance",domain="$domain"'
WINDOW = "[$__rate_interval]"
NAMED = "{{domain}} {{instance}}"
PERCENT, CPUS, SECONDS, EACH = "percentunit", "none", "s", "cps"


@dataclass(frozen=True)
class Panel:
    """A panel `width` of 24 columns wide. unit: Grafana's name of it. queries: legends and PromQL. kind:
    "time", "stat" or "table"."""

    title: str
    about: str
    unit: str
    queries: Sequence[tuple[str, str]]
    width: int = 12
    kind: str = "time"


Rows = Sequence[tuple[str, Sequence[Panel]]]


def of_hosts(metric: str) -> str:
    """The series of a metric on the chosen hosts."""
    return f"{metric}{{{HOSTS}}}"


def of_guest(metric: str) -> str:
    """The series of a metric of the chosen guest."""
    return f"{metric}{{{GUEST}}}"


def rate(metric: str, where: str = HOSTS) -> str:
    """The growth of a counter by second."""
    return f"rate({metric}{{{where}}}{WINDOW})"


def worst(query: str) -> str:
    """The ten guests that have most."""
    return f"topk(10, {query})"


def _number(title: str, about: str, unit: str, query: str) -> Panel:
    return Panel(title, about, unit, (("{{instance}}", query),), 4, "stat")


HOST_ROWS: Rows = (
    ("Who waits", (
        _number("CPUs wanted for each got", "1: no vCPU waits, whatever was sold.", CPUS,
                of_hosts("instance:gangd_demand:ratio_rate5m")),
        _number("vCPUs for each CPU", "vCPUs of running guests for each online CPU.", CPUS,
                of_hosts("instance:gangd_overcommit:ratio")),
        Panel("CPU ready, worst guests", "Of the time in which a guest wanted CPUs, the part it waited.",
              PERCENT, ((NAMED, worst(of_hosts("domain:gangd_domain_wait:ratio_rate5m"))),), 16),
    )),
    ("Who causes it", (
        Panel("CPU used, largest guests", "CPUs that all vCPUs of a guest use together.", CPUS,
              ((NAMED, worst(of_hosts("domain:gangd_domain_cpu_seconds:rate5m"))),), 8),
        Panel("PAUSE exits", "Spinning in vain, by guest.", EACH,
              ((NAMED, worst(of_hosts("domain:gangd_domain_pause_exits:rate5m"))),), 8),
        Panel("PAUSE exits while a sibling waited", "Lock-holder preemption: the host's part of it.",
              EACH, ((NAMED, worst(of_hosts("domain:gangd_domain_lhp_exits:rate5m"))),), 8),
    )),
    ("Who is apart", (
        Panel("Co-run, worst guests", "Of the running time, the part without a runnable vCPU off-CPU.",
              PERCENT, ((NAMED, f"bottomk(10, {of_hosts('domain:gangd_domain_corun:ratio_rate5m')})"),), 8),
        Panel("Co-stop, worst guests", "Seconds by second in which a vCPU ran and a runnable one did not.",
              SECONDS, ((NAMED, worst(rate("gangd_domain_costop_seconds_total"))),), 8),
        Panel("Start skew", "From the start of a turn to its last member on CPU.", SECONDS,
              tuple((f"p{part} {{{{instance}}}}",
                     f"histogram_quantile({part / 100:g}, sum by (instance, le) "
                     f"({rate('gangd_scheduler_start_skew_seconds_bucket')}))") for part in (50, 99)), 8),
    )),
    ("Who is refused", (
        _number("Refused guests", "Guests that are marked or selected and cannot be gangs.", CPUS,
                of_hosts("gangd_plan_refused")),
        _number("Busy guests", "Guests that gangd observes and does not touch now.", CPUS,
                of_hosts("gangd_domains_busy")),
        _number("Failures", "What gangd cannot do now; gangctl status names each.", CPUS,
                of_hosts("gangd_failures")),
        Panel("Guests that are not as they are to be",
              "The code is one of docs/json.md; gangctl dominfo says why.", CPUS,
              (("", f'gangd_domain_schedule{{{HOSTS},code!=""}}'),), 12, "table"),
    )),
    ("gangd itself", (
        Panel("CPU", "CPUs that the daemon uses.", CPUS,
              (("{{instance}}", rate("gangd_process_cpu_seconds_total")),), 6),
        Panel("Memory", "Resident memory of the daemon.", "bytes",
              (("{{instance}}", of_hosts("gangd_process_resident_memory_bytes")),), 6),
        Panel("Ejections", "The kernel went back to its own scheduler, within an hour.", CPUS,
              (("{{kind}} {{instance}}",
                f"increase(gangd_scheduler_ejections_by_kind_total{{{HOSTS}}}[1h])"),), 6),
        Panel("Series of vCPUs left out", "By exporter.vcpu_series.", CPUS,
              (("{{instance}}", of_hosts("gangd_vcpu_series_dropped")),), 6),
    )),
)  # fmt: skip
GUEST_ROWS: Rows = (
    ("Does it wait?", (
        Panel("How it is scheduled", "The code is empty when that is as it is to be.", CPUS,
              (("", of_guest("gangd_domain_schedule")),), 8, "table"),
        Panel("CPU used and CPU ready", "CPUs; ready: vCPUs that are runnable and off-CPU.", CPUS,
              (("used", of_guest("domain:gangd_domain_cpu_seconds:rate5m")),
               ("ready", of_guest("domain:gangd_domain_run_delay_seconds:rate5m"))), 8),
        Panel("CPU ready of each vCPU", "No data where exporter.vcpu_series left the guest out.", PERCENT,
              (("vCPU {{vcpu}}", rate("gangd_vcpu_run_delay_seconds_total", GUEST)),), 8),
    )),
    ("Does it run together?", (
        Panel("Co-run", "Of the running time, the part without a runnable vCPU off-CPU.", PERCENT,
              (("co-run", of_guest("domain:gangd_domain_corun:ratio_rate5m")),), 8),
        Panel("Where its time goes", "Seconds by second.", SECONDS,
              tuple((name, rate(f"gangd_{where}_{name}_seconds_total", GUEST)) for where, name in (
                  ("domain", "costop"), ("gang", "apart"), ("gang", "borrowed"), ("gang", "throttled"),
                  ("gang", "forced_idle"))), 8),
        Panel("Turns", "Opened for it, and those in which all its runnable vCPUs ran at once.", EACH,
              (("turns", rate("gangd_gang_turns_total", GUEST)),
               ("whole", rate("gangd_gang_turns_whole_total", GUEST))), 8),
    )),
    ("Does it spin?", (
        Panel("PAUSE exits", "All, and those taken while a runnable sibling was off-CPU.", EACH,
              (("PAUSE", of_guest("domain:gangd_domain_pause_exits:rate5m")),
               ("LHP", of_guest("domain:gangd_domain_lhp_exits:rate5m"))), 8),
        Panel("Directed yields", "Of its vCPUs, and those whose sibling ran next.", EACH,
              (("yields", rate("gangd_gang_yields_total", GUEST)),
               ("hit", rate("gangd_gang_yields_hit_total", GUEST))), 8),
        Panel("Exits to KVM", "By reason.", EACH,
              (("{{reason}}", rate("gangd_domain_exits_total", GUEST)),), 8),
    )),
)  # fmt: skip


def _panel(panel: Panel, position: GridPos) -> timeseries.Panel | stat.Panel | table.Panel:
    kinds = {"time": timeseries.Panel, "stat": stat.Panel, "table": table.Panel}
    made = kinds[panel.kind]().title(panel.title).description(panel.about).unit(panel.unit)
    made.datasource(SOURCE).grid_pos(position).min(0).id(1 + position.y * WIDTH + position.x)
    for number, (legend, query) in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query).legend_format(legend).ref_id(chr(ord("A") + number))
        if panel.kind == "table":
            target.instant().format(PromQueryFormat.TABLE)
        made.with_target(target)
    return made


def _variable(name: str, label: str, query: str, several: bool) -> dashboard.QueryVariable:
    made = dashboard.QueryVariable(name).label(label).query(query).datasource(SOURCE)
    made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    return made.multi(several).include_all(several)


def _dashboard(title: str, uid: str, rows: Rows, of_one: bool) -> str:
    made = dashboard.Dashboard(title).uid(uid).tags(["gangd"])
    made.time("now-1h", "now").refresh("1m").readonly()
    made.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    made.with_variable(_variable("instance", "Host", "label_values(gangd_build_info, instance)", True))
    if of_one:
        names = 'label_values(gangd_domain_vcpus{instance=~"$instance"}, domain)'
        made.with_variable(_variable("domain", "Guest", names, False))
    top = 0
    for name, panels in rows:
        made.with_row(dashboard.Row(name).grid_pos(GridPos(h=1, w=WIDTH, x=0, y=top)).id(1 + top * WIDTH))
        left = 0
        for panel in panels:
            made.with_panel(_panel(panel, GridPos(h=HEIGHT, w=panel.width, x=left, y=top + 1)))
            left += panel.width
        top += 1 + HEIGHT
    built = json.loads(json.dumps(made.build(), cls=JSONEncoder), object_hook=_known)
    return json.dumps(built, indent=1, sort_keys=True) + "\n"


def _known(values: dict[str, object]) -> dict[str, object]:
    """Drop what is null: Grafana has defaults for what is not there."""
    return {key: value for key, value in values.items() if value is not None}


def pages() -> dict[str, str]:
    """The dashboards, by file name."""
    return {
        "gangd-hosts.json": _dashboard("gangd: hosts", "gangd-hosts", HOST_ROWS, False),
        "gangd-guest.json": _dashboard("gangd: one guest", "gangd-guest", GUEST_ROWS, True),
    }


def main() -> int:
    """Write both."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
