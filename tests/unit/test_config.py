# SPDX-License-Identifier: Apache-2.0
"""The configuration file: defaults, and errors that name file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangd import config
from gangd.config import RELOADED, Config, load, merged
from gangd.errors import InvalidConfig
from gangd.model.profile import Profile, Selector, rules


def written(directory: Path, text: str | bytes) -> Path:
    path = directory / "gangd.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(written(tmp_path, "")) == Config()


def test_no_file_at_the_default_path_is_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "DEFAULT_PATH", tmp_path / "none.toml")
    assert load() == Config()


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"none.toml: No such file"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize("key", ['switch = "full"', 'program = "turns"'])
def test_there_is_one_scheduler(tmp_path: Path, key: str) -> None:
    """The keys that chose between two schedulers, or between tasks, are unknown keys like any other."""
    with pytest.raises(InvalidConfig, match=f"scheduler.{key.split()[0]}: unknown key"):
        load(written(tmp_path, f"[scheduler]\n{key}"))
    assert load(written(tmp_path, '[scheduler]\nhelp = "unmarked"')).scheduler.help == "unmarked"


def test_every_key(tmp_path: Path) -> None:
    text = """
    [daemon]
    guests = ["libvirt", "kvm"]
    libvirt_uri = "qemu:///system"
    interval = 10
    measure_interval = 0.5
    state_dir = "/tmp/g"
    [scheduler]
    backend = "sched_ext"
    turn_us = 1000
    policy = "strict"
    [exporter]
    listen = "[::1]:9000"
    enabled = false
    [control]
    bus = "unix:path=/run/bus"
    """
    found = load(written(tmp_path, text))
    assert found.daemon == config.Daemon(("libvirt", "kvm"), "qemu:///system", 10.0, 0.5, "/tmp/g")
    assert found.scheduler == config.Scheduler("sched_ext", 1000, "strict")
    assert found.exporter.address == ("::1", 9000)
    assert not found.exporter.enabled
    assert found.control.bus == "unix:path=/run/bus"


def test_merged_takes_what_can_be_reloaded_and_names_the_rest() -> None:
    """A value that can be reloaded is taken, others are named; a section without a change is as it was."""
    new = Config(
        scheduler=config.Scheduler(turn_us=5000, backend="none"),
        exporter=config.Exporter(enabled=False),
    )
    found, taken, kept = merged(Config(), new)
    assert found == Config(scheduler=config.Scheduler(turn_us=5000))
    assert taken == ["scheduler.turn_us"]
    assert kept == ["scheduler.backend", "exporter.enabled"]
    assert merged(found, found) == (found, [], [])
    new = Config(profile={"batch": config.Profile(weight=10)}, select=(config.Select(name="*"),))
    assert merged(found, new)[1:] == (["scheduler.turn_us", "profile", "select"], [])
    assert merged(found, new)[0] == new


def test_an_old_name_is_taken_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The operator reads in the log what to write instead, and where."""
    file = tmp_path / "gangd.toml"
    file.write_text("[scheduler]\n\nslot_us = 5000\n")
    assert load(file).scheduler.turn_us == 5000
    (line,) = caplog.messages
    assert line.startswith(f"{file}:3: scheduler.slot_us is called scheduler.turn_us: ")


def test_every_reloaded_key_exists() -> None:
    """A key that was renamed must not fall out of the list in silence."""
    sections = {name: getattr(Config(), name) for name in Config.__struct_fields__}
    known = {f"{s}.{k}" for s, keys in sections.items() for k in getattr(keys, "__struct_fields__", ())}
    assert known | {"profile", "select"} > RELOADED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[scheduler]\n# why\nturn_us = 5\n", ":3: scheduler.turn_us: expected `int` >= 1000"),
        ("[scheduler]\nturn_us = 1000001", ":2: scheduler.turn_us: expected `int` <= 1000000"),
        ('[scheduler]\nturn_us = "20000"', ":2: scheduler.turn_us: expected `int`, got `str`"),
        ("[scheduler]\n# of 0.1\nslot_us = 5\n", ":1: scheduler.turn_us: expected `int` >= 1000"),
        ("[scheduler]\nslot_us = 5000\nturn_us = 5000", ":2: scheduler.slot_us: unknown key"),
        ("[scheduler]\nturn_us = true", ":2: scheduler.turn_us: expected `int`, got `bool`"),
        ("[daemon]\n\ninterval = nan", ":3: daemon.interval: expected `float`"),
        ("[daemon]\ninterval = inf", ":2: daemon.interval: expected `float`"),
        ('[daemon]\nstate_dir = "run"', ":2: daemon.state_dir: expected"),
        ('[scheduler]\npolicy = "A"', ":2: scheduler.policy: expected"),
        ('[scheduler]\nplacement = "dense"', ":2: scheduler.placement: invalid enum value 'dense'"),
        ('[scheduler]\nbackend = "cfs"', ":2: scheduler.backend: invalid enum value 'cfs'"),
        ("[daemon]\n[exporter]\ncolour = 1", ":3: exporter.colour: unknown key"),
        ("[daemon]\n[gang]\nx = 1", ":2: gang: unknown key"),
        ("weight = 1", ":1: weight: unknown key"),
        ("daemon = 3", ":1: daemon: expected `object`, got `int`"),
        ("scheduler.turn_us = 3", ":1: scheduler.turn_us: expected"),
        ("\nscheduler = { turn_us = 3 }", ":2: scheduler.turn_us: expected"),
        ('[exporter]\nlisten = "9752"', ":2: exporter.listen: expected ADDRESS:PORT, an IPv6 address"),
        ('[scheduler]\npolicy = "A"', ":2: scheduler.policy: expected a name (a-z"),
        ('[control]\nbus = "no"', ":2: control.bus: expected system, session or a D-Bus address"),
        ('[exporter]\ncertificate = "a"', ":2: exporter.certificate: expected an absolute path"),
        ('[exporter]\nlisten = "::1:9752"', ":2: exporter.listen: expected"),
        ('[exporter]\ncertificate = "/a"', ":1: exporter.key: expected `key` beside `certificate`"),
        ('[exporter]\nenabled = true\nlisten = "a:70000"', ":3: exporter.listen: expected a port"),
        ('[control]\nbus = "sess"', ":2: control.bus: expected"),
        ("[daemon]\ninterval = 5\ninterval = 6", ":3: cannot overwrite a value"),
        ("[daemon]\ninterval = ", ":2: invalid value"),
        ("[scheduler]\ncalm_percent = 9", ":2: scheduler.calm_percent: expected `calm_percent` of at most"),
        ("[daemon]\ninterval = 1 2", ":2: expected newline"),
        (b"[daemon]\n# \xff", ":2: not UTF-8"),
        ("[profile.db]\nweight = 0", ":2: profile.db.weight: expected `int` >= 1"),
        ("[profile.a]\n[profile.db]\nslot_us = 3", ":3: profile.db.slot_us: unknown key"),
        ("[profile.DB]\n", ":1: profile.DB: not a name for a profile"),
        ("[profile.off]\n", ":1: profile.off: 'off' is reserved"),
        ("profile = 3", ":1: profile: expected `object`, got `int`"),
        ("\nprofile.db = 3", ":2: profile.db: expected `object`, got `int`"),
        ("[[select]]\n\n[[select]]\nname = 'a'", ":1: select[0]: expected name, cgroup, tag or marked"),
        ("[[select]]\nname = 'a'\n[[select]]\nnme = 'a'", ":4: select[1].nme: unknown key"),
        ("[[select]]\nname = 3", ":2: select[0].name: expected `str"),
        ("[[select]]\ntag = 'two words'", ":2: select[0].tag: expected"),
        ("[[select]]\nname = 'a'\nprofile = 'a'\npolicy = 'b'", ":1: select[0]: expected profile or policy"),
        ("[[select]]\ntag = 'a'\nmarked = false", ":1: select[0]: a tag is part of a mark"),
        ("[[select]]\nname = 'a'\n\nprofile = 'b'", ":4: select[0].profile: no profile is called 'b'"),
        ("\nselect = [{ nme = 'a' }]", ":2: select[0].nme: unknown key"),
        ("select = 3", ":1: select: expected `array`, got `int`"),
    ],
)
def test_errors_name_file_line_and_key(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidConfig) as caught:
        load(path)
    assert caught.value.cause.startswith(f"{path}{message}"), caught.value.cause


def test_profiles_and_selectors(tmp_path: Path) -> None:
    """Rules keep the place where each stands; a profile may stand behind its selector."""
    text = """
    [[select]]
    name = "db-*"
    profile = "db"
    [profile.db]
    policy = "strict"
    weight = 300
    [[select]]
    tag = "batch"
    [[select]]
    marked = true
    policy = "off"
    """
    path = written(tmp_path, text)
    said = load(path).rules
    assert said.profiles["db"] == Profile("db", "strict", 300, f"{path}:5")
    assert said.selectors == (
        Selector("db", f"{path}:2", name="db-*"),
        Selector("default", f"{path}:8", tag="batch"),
        Selector("off", f"{path}:10", marked=True),
    )


def test_where_a_table_stands_cannot_be_claimed(tmp_path: Path) -> None:
    """The place is what the file says, not what is written in it."""
    path = written(tmp_path, "[[select]]\nname = '*'\n\"<place>\" = 'elsewhere'\n")
    assert load(path).rules.selectors[0].source == f"{path}:1"


def test_without_a_file_nobody_is_selected() -> None:
    """Only guests that somebody marked are touched."""
    assert Config().rules == rules()


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "Is a directory"), (Path("a\0b"), "null byte")):
        with pytest.raises(InvalidConfig, match=reason):
            load(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary() | st.text().map(lambda text: text.encode(errors="replace")))
def test_any_file_loads_or_is_invalid(tmp_path: Path, data: bytes) -> None:
    try:
        load(written(tmp_path, data))
    except InvalidConfig as error:
        assert str(tmp_path) in error.cause
