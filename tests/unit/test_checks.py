# SPDX-License-Identifier: Apache-2.0
"""The checks of a host, on hosts of files: each fault alone, all at once, and facts that cannot be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangd.actuate import gang_ko
from gangd.actuate.preflight import KFUNCS
from gangd.checks import Check, Verdict, verdict
from unit.actuate.btf import FakeKernel
from unit.model.shapes import CPU, Shape

UNIX = "Num RefCount Protocol Flags Type St Inode Path\n"
LISTENS = f"{UNIX}0000000000000000: 00000002 00000000 00010000 0001 01 2345 /run/libvirt/virtqemud-sock\n"
CONNECTED = f"{UNIX}0000000000000000: 00000003 00000000 00000000 0001 03 2346 /run/libvirt/libvirt-sock\n"
FLAGS = "processor\t: 0\nflags\t\t: fpu {} lm\n"
PLE = "sys/module/kvm_intel/parameters/ple_gap"
GOOD = {
    "sys/class/misc/kvm/dev": "10:232",
    PLE: "128",
    "sys/kernel/tracing/events/kvm/kvm_exit/id": "1900",
    f"{CPU}/smt/control": "on",
    "sys/kernel/sched_ext/state": "disabled",
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory",
    "proc/net/unix": LISTENS,
}


@pytest.fixture(autouse=True)
def no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the modules that this machine's modprobe finds: the host of files does not have them."""
    monkeypatch.setattr(gang_ko, "_installed", lambda *_args: False)


def host(root: Path, files: dict[str, str] | None = None, cores: int = 4) -> Path:
    """A host on which everything is as it should be, but for `files`; "" leaves one out."""
    for name, text in Shape(cores=cores, files={**GOOD, **(files or {})}).tree().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def wrong(found: Verdict) -> dict[str, Check]:
    return {check.text: check for check in found.checks if check.result != "pass"}


def test_a_good_host(tmp_path: Path) -> None:
    """Every check passes, and says what it found where that is not plain; gang.ko is not asked for."""
    found = verdict(host(tmp_path), FakeKernel())
    assert wrong(found) == {} and found.schedulable and found.backend == "sched_ext"
    told = {check.about: check.detail for check in found.checks}
    assert told["CPUs"] == "on, 2 threads a core" and told["libvirt"] == "/run/libvirt/virtqemud-sock"
    assert "gang.ko" not in told


@pytest.mark.parametrize(
    ("files", "text", "result", "says"),
    [
        ({"sys/class/misc/kvm/dev": ""}, "KVM is loaded", "fail", "KVM is not loaded"),
        (
            {"sys/class/misc/kvm/dev": "", "proc/cpuinfo": FLAGS.format("svm")},
            *("KVM is loaded", "fail", "modprobe kvm_amd"),
        ),
        (
            {"sys/class/misc/kvm/dev": "", "proc/cpuinfo": FLAGS.format("")},
            *("KVM is loaded", "fail", "neither vmx nor svm; switch"),
        ),
        ({PLE: "0"}, "guests that spin are noticed (pause-loop exiting)", "warn", "kvm_intel.ple_gap"),
        ({PLE: ""}, "guests that spin are noticed (pause-loop exiting)", None, "KVM does not say"),
        (
            {"sys/kernel/tracing/events/kvm/kvm_exit/id": ""},
            *("VM exits can be counted (tracepoint kvm_exit)", "warn", "no tracepoint kvm_exit"),
        ),
        ({f"{CPU}/isolated": "1-7"}, "two or more may run guests", "fail", "one CPU"),
        ({f"{CPU}/isolated": "1-7"}, "no CPU is isolated with isolcpus=", "fail", "=managed_irq,1-7`"),
        ({f"{CPU}/online": ""}, "two or more may run guests", None, "cannot look: "),
        ({f"{CPU}/smt/control": ""}, "SMT is known", None, "smt/control"),
        (
            {"sys/kernel/sched_ext/state": "enabled", "sys/kernel/sched_ext/root/ops": "scx_x"},
            *("no other scheduler of that kind is loaded", "fail", "'scx_x' is loaded; stop it first"),
        ),
        (
            {"sys/fs/cgroup/cgroup.controllers": ""},
            *("cgroup v2 has the cpu controller", "warn", "no cgroup v2"),
        ),
        (
            {"sys/fs/cgroup/cgroup.controllers": "cpuset io"},
            *("cgroup v2 has the cpu controller", "warn", "no cpu controller"),
        ),
        ({"proc/net/unix": ""}, "its daemon listens", "warn", "nobody listens on"),
        ({"proc/net/unix": CONNECTED}, "its daemon listens", "warn", "virtqemud.socket, or libvirtd.socket"),
    ],
)
def test_a_fault(tmp_path: Path, files: dict[str, str], text: str, result: str | None, says: str) -> None:
    """A missing part has its result and sentence, and a failure alone makes a host unable to run gangs."""
    found = verdict(host(tmp_path, files), FakeKernel())
    check = wrong(found)[text]
    assert check.result == result and says in f"{check.detail}; {check.hint}"
    failed = "fail" in {check.result for check in found.checks}
    assert found.schedulable != failed and (result != "fail" or failed)


@pytest.mark.parametrize("name", ["libvirt-sock", "virtqemud-sock"])
@pytest.mark.parametrize("run", ["/run", "/var/run"])
def test_either_libvirt(tmp_path: Path, name: str, run: str) -> None:
    """The modular daemon is as good as the monolithic one."""
    text = LISTENS.replace("/run/libvirt/virtqemud-sock", f"{run}/libvirt/{name}")
    assert wrong(verdict(host(tmp_path, {"proc/net/unix": text}), FakeKernel())) == {}


def test_all_at_once(tmp_path: Path) -> None:
    """A host that lacks everything is told so in one go, with every function that its kernel lacks."""
    kernel = FakeKernel(dict.fromkeys(KFUNCS))
    kernel.members.clear()
    kernel.group.clear()
    found = verdict(host(tmp_path, {**dict.fromkeys(GOOD, ""), f"{CPU}/isolated": "1-7"}), kernel)
    assert not found.schedulable and found.backend is None
    assert [check.text for check in found.checks if check.result == "fail"] == [
        "KVM is loaded",
        "two or more may run guests",
        "all functions that the scheduler calls are there",
        "a scheduler can know cpu.max",
        "no CPU is isolated with isolcpus=",
        "the module is installed for this kernel",
    ]
    functions = wrong(found)["all functions that the scheduler calls are there"]
    assert [name for name in KFUNCS if f"{name}()" not in functions.detail] == []
    assert "Debian has it in" in functions.hint


def test_the_module_stands_in(tmp_path: Path) -> None:
    """A kernel without sched_ext is a warning where gang.ko is there, and gangs can be scheduled."""
    found = verdict(host(tmp_path, {"dev/gang": "x"}), FakeKernel(sched_ext=False))
    assert found.schedulable and found.backend == "module"
    assert [check.result for check in wrong(found).values()] == ["warn"]


def test_no_kick(tmp_path: Path) -> None:
    """Tasks are pushed instead; what is lost is said."""
    found = verdict(host(tmp_path), FakeKernel({"scx_bpf_kick_cpu": None}))
    assert found.schedulable and found.backend == "sched_ext"
    assert wrong(found)["gangs can be strict"].result == "warn"


def test_preflight_says_what_only_root_may_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tracefs is root's: other users read that it was not looked at, and the rest is answered."""
    whole = Path.stat

    def stat(path: Path, *, follow_symlinks: bool = True) -> object:
        if "tracing" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", stat)
    found = verdict(host(tmp_path), FakeKernel())
    (check,) = wrong(found).values()
    assert check.result is None and check.detail.endswith("events/kvm/kvm_exit: only root may")
    assert found.schedulable


def test_the_verifier_has_the_last_word(tmp_path: Path) -> None:
    """A kernel that has all the parts, and whose verifier refuses the scheduler, schedules no gangs: the
    answer is no. Whoever is not root is told that it was not asked."""

    def forbidden() -> str | None:
        raise PermissionError

    text = "the kernel's verifier accepts the scheduler"
    here = host(tmp_path)
    assert wrong(verdict(here, FakeKernel(), lambda: None)) == {}
    no = verdict(here, FakeKernel(), lambda: "gang: load: Invalid argument")
    assert not no.schedulable and wrong(no)[text].detail == "gang: load: Invalid argument"
    unasked = verdict(here, FakeKernel(), forbidden)
    assert unasked.schedulable and wrong(unasked)[text].result == "warn"
    lacking = verdict(here, FakeKernel(sched_ext=False), lambda: pytest.fail("it was asked"))
    assert not lacking.schedulable
