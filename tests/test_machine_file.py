"""Machine files and quantities: examples, every kind of mistake, and round trips with Hypothesis."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.errors import MachineError
from manycl.machine import HOST, Device, Link, Machine, Network
from manycl.machine_file import format_machine, load_machine, parse_machine
from manycl.units import format_bytes, format_quantity, parse_bytes, parse_quantity, show_bytes
from tests import ROOT

EXAMPLES = sorted((ROOT / "manycl" / "machines").glob("*.toml"))

GOOD = """
name = "small"
source = "invented"
[host]
bandwidth = "30 GB/s"
[[device]]
name = "cpu0"
kind = "cpu"
memory = "host"
compute_units = 4
clock = "3.5 GHz"
flops = "28 GFLOP/s"
bandwidth = "25.6 GB/s"
global_memory = "8 GiB"
[[device]]
name = "gpu0"
kind = "gpu"
memory = "own"
compute_units = 13
clock = "1050 MHz"
flops = "3.5 TFLOP/s"
bandwidth = "196 GB/s"
global_memory = "4 GB"
max_allocation = "512 MiB"
launch_overhead = "12.5 us"
double = false
[device.source]
clock = "a data sheet"
[[link]]
from = "cpu0"
to = "gpu0"
both_ways = true
bandwidth = "6 GB/s"
latency = "20 us"
source = "a guess"
"""


def test_values_are_read_in_base_units() -> None:
    machine = parse_machine(GOOD)
    cpu, gpu = machine.devices
    assert machine.name == "small"
    assert cpu == Device(
        "cpu0",
        "cpu",
        memory=HOST,
        compute_units=4,
        clock=3.5e9,
        flops=28e9,
        bandwidth=25.6e9,
        global_memory=8 << 30,
        max_allocation=2 << 30,  # a quarter, where the file does not say
        queues=1,
        launch_overhead=5e-6,
    )
    assert (gpu.memory, gpu.clock, gpu.global_memory, gpu.max_allocation) == (1, 1.05e9, 4 * 10**9, 512 << 20)
    assert (gpu.queues, gpu.launch_overhead, gpu.double) == (16, 12.5e-6, False)
    assert machine.links == (Link(0, 1, 6e9, 20e-6), Link(1, 0, 6e9, 20e-6))
    assert machine.notes == {"machine": "invented", "gpu0.clock": "a data sheet", "host->gpu0": "a guess"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_published_files_read_and_round_trip(path: Path) -> None:
    machine = load_machine(path)
    assert parse_machine(format_machine(machine)) == machine
    assert machine.notes, "a published number says where it is from"


def test_there_are_published_files() -> None:
    assert {"pyschedcl", "h200_x2", "cpu_pair"} <= {p.stem for p in EXAMPLES}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('clock = "3.5 GHz"', 'clock = "3.5"', ["device cpu0.clock", "3.5 GHz"]),
        ('clock = "3.5 GHz"', "clock = 3.5", ["device cpu0.clock", "quotation marks"]),
        ('clock = "3.5 GHz"', "", ["device cpu0.clock", "missing"]),
        ('clock = "3.5 GHz"', 'clock = "3.5 ghz"', ["device cpu0.clock", "GHz"]),
        ('clock = "3.5 GHz"', 'clock = "3.5 GB/s"', ["device cpu0.clock", "GB/s is not one of Hz"]),
        ('clock = "3.5 GHz"', 'clock = "0 GHz"', ["device cpu0.clock", "above zero"]),
        ('clock = "3.5 GHz"', 'clock = "-1 GHz"', ["device cpu0.clock"]),
        ('clock = "3.5 GHz"', 'clock = "1e999 GHz"', ["device cpu0.clock", "too large"]),
        ('clock = "3.5 GHz"', 'clok = "3.5 GHz"', ["device cpu0.clok", "not a key (did you mean 'clock'?)"]),
        ('memory = "host"', 'memory = "gpu0"', ["device cpu0.memory", "described before"]),
        ('memory = "host"', "memory = 0", ["device cpu0.memory"]),
        ('global_memory = "8 GiB"', 'global_memory = "0.3 B"', ["device cpu0.global_memory", "whole number"]),
        ('global_memory = "8 GiB"', 'global_memory = "8e30 B"', ["device cpu0.global_memory"]),
        ("compute_units = 4", "compute_units = 0", ["device cpu0.compute_units", "from 1"]),
        ("compute_units = 4", "compute_units = true", ["device cpu0.compute_units"]),
        ("compute_units = 4", 'compute_units = "4"', ["device cpu0.compute_units"]),
        ("compute_units = 4", "compute_units = 0x" + "f" * 9000, ["device cpu0.compute_units", "huge"]),
        ("compute_units = 4", "compute_units = " + "9" * 9000, ["not TOML"]),
        ('name = "gpu0"', 'name = "cpu0"', ["device 2.name", "new name"]),
        ('name = "gpu0"', 'name = "host"', ["device 2.name"]),
        ('name = "gpu0"', "", ["device 2.name", "missing"]),
        ('kind = "gpu"', 'kind = "fpga"', ["device gpu0.kind", "cpu, gpu, accelerator"]),
        ('kind = "gpu"', "kind = []", ["device gpu0.kind"]),
        ("double = false", "double = 0", ["device gpu0.double"]),
        ("double = false", "slowdown = 0.5", ["device gpu0.slowdown", "from 1"]),
        ("double = false", "slowdown = nan", ["device gpu0.slowdown"]),
        ('clock = "a data sheet"', 'clok = "a data sheet"', ["gpu0.source.clok"]),
        ('source = "a guess"', "source = 3", ["host->gpu0.source"]),
        ('to = "gpu0"', 'to = "gpu1"', ["link 1.to", "gpu1", "cpu0, gpu0"]),
        ('to = "gpu0"', 'to = "host"', ["link 1", "one memory"]),
        ('to = "gpu0"', "", ["link 1.to", "missing"]),
        ("both_ways = true", "", ["link", "gpu0 to host is missing"]),
        ('latency = "20 us"', 'latency = "20"', ["link 1.latency"]),
        ("[[link]]", "[link]", ["link", "[[link]]"]),
        ('name = "small"', "name = 3", ["name"]),
        ('bandwidth = "30 GB/s"', "", ["host.bandwidth", "missing"]),
        ('bandwidth = "30 GB/s"', 'bandwidth = "30 GB"', ["host.bandwidth"]),
        ('bandwidth = "30 GB/s"', 'bandwidth = "0 GB/s"', ["host.bandwidth", "above zero"]),
        ('bandwidth = "30 GB/s"', 'speed = "30 GB/s"', ["host.speed", "not a key"]),
        ('bandwidth = "30 GB/s"', 'bandwidth = "19 GB/s"', ["cpu0.bandwidth", "more than the host's memory carries"]),
        ('bandwidth = "30 GB/s"', 'bandwidth = "30 GB/s"\nsource = 3', ["host.source"]),
        ("[host]", "[[host]]", ["host", "[host], once"]),
        ('name = "small"', "name = ", ["not TOML", "line 2"]),
        ('name = "small"', "speed = 3", ["speed", "not a key"]),
    ],
)
def test_mistakes_name_the_file_and_the_key(old: str, new: str, words: list[str], tmp_path: Path) -> None:
    assert old in GOOD
    path = tmp_path / "bad.toml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(MachineError) as caught:
        load_machine(path)
    for word in [str(path), *words]:
        assert word in str(caught.value)


def test_the_example_of_the_page_is_right() -> None:
    page = (ROOT / "docs" / "machines.md").read_text(encoding="utf-8")
    machine = parse_machine(page.partition("```toml")[2].partition("```")[0])
    assert [d.name for d in machine.devices] == ["cpu0", "gpu0"]
    assert machine.notes["gpu0.flops"] == "from cores and clock"
    for key in (*Device.__dataclass_fields__, "from", "to", "both_ways", "latency"):
        assert f"`{key}`" in page, f"{key} is not described"


def test_no_devices_missing_file_binary_file_and_deep_nesting(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="at least one"):
        parse_machine('name = "none"')
    with pytest.raises(MachineError, match="described twice"):
        parse_machine(GOOD + GOOD[GOOD.index("[[link]]") :])
    with pytest.raises(MachineError, match="cannot be read"):
        load_machine(tmp_path / "absent.toml")
    with pytest.raises(MachineError, match="cannot be read"):
        load_machine("a\0b")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MachineError, match="cannot be read"):
        load_machine(tmp_path / "binary.toml")
    with pytest.raises(MachineError, match="not TOML"):
        parse_machine("a = " + "[" * 100_000)


@given(st.text() | st.text(st.sampled_from('[]="\n .devicnamlk0_host')))
def test_any_text_is_read_or_refused(text: str) -> None:
    for candidate in (text, GOOD + text, text + GOOD):
        try:
            machine = parse_machine(candidate)
        except MachineError:
            continue
        assert parse_machine(format_machine(machine)) == machine


_positive = st.floats(1e-12, 1e18)
_words = st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def _machines(draw: st.DrawFn) -> Machine:
    devices: list[Device] = []
    memories = 1
    for number in range(draw(st.integers(1, 4))):
        memory = draw(st.integers(0, memories))
        memories += memory == memories
        devices.append(
            Device(
                name=f"{draw(st.sampled_from(['cpu', 'gpu', 'odd-one']))}{number}.{number}",
                kind=draw(st.sampled_from(["cpu", "gpu", "accelerator", "node"])),
                model=draw(_words),
                platform=draw(_words),
                driver=draw(_words),
                memory=memory,
                compute_units=draw(st.integers(1, 10**6)),
                clock=draw(_positive),
                flops=draw(_positive),
                bandwidth=draw(_positive),
                global_memory=draw(st.integers(1, 2**60)),
                max_allocation=draw(st.integers(1, 2**60)),
                local_memory=draw(st.integers(0, 2**30)),
                max_work_group=draw(st.integers(1, 10**5)),
                double=draw(st.booleans()),
                queues=draw(st.integers(1, 64)),
                launch_overhead=draw(st.just(0.0) | _positive),
                enqueuing=draw(st.just(0.0) | _positive),
                enqueuing_copy=draw(st.just(0.0) | _positive),
                slowdown=draw(st.floats(1.0, 1e6)),
                simulator=draw(st.booleans()),
                event_domain=draw(_words),
            )
        )
    links = [
        Link(a, b, draw(_positive), draw(st.just(0.0) | _positive), draw(st.integers(0, 2**30)))
        for a in range(memories)
        for b in range(memories)
        if a != b and (HOST in (a, b) or draw(st.booleans()))
    ]
    subjects = ["machine", *(f"{d.name}.clock" for d in devices)]
    notes = draw(st.dictionaries(st.sampled_from(subjects), _words))
    drawn = [d.bandwidth for d in devices if d.memory == HOST]
    drawn += [x.bandwidth for x in links if HOST in (x.source, x.target)]
    host = draw(st.just(math.inf) | _positive.map(lambda more: max([more, *drawn])))
    return Machine(tuple(devices), tuple(links), draw(_words.filter(bool)), notes, host)


@given(_machines())
def test_round_trip(machine: Machine) -> None:
    assert parse_machine(format_machine(machine)) == machine


def test_what_no_file_can_describe_is_refused() -> None:
    good = parse_machine(GOOD)
    for bad in (
        replace(good, devices=(good.devices[0], replace(good.devices[1], memory=2))),  # nobody owns memory 1
        replace(good, links=()),
        replace(good, notes={"nothing": "a note about nothing"}),
        replace(good, devices=(replace(good.devices[0], name="two words"), good.devices[1])),
    ):
        with pytest.raises(MachineError):
            format_machine(bad)


# quantities


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("55 GB/s", "B/s", 55e9),
        ("1 GiB/s", "B/s", 2.0**30),
        ("20 us", "s", 20e-6),
        ("20\N{MICRO SIGN}s", "s", 20e-6),
        ("3 s", "s", 3.0),
        ("3.5 GHz", "Hz", 3.5e9),
        (" 6.5  TFLOP/s ", "FLOP/s", 6.5e12),
        ("2.5e-1 GHz", "Hz", 0.25e9),
    ],
)
def test_quantities(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == value


@given(st.sampled_from(["Hz", "s", "B/s", "FLOP/s"]), st.floats(0, allow_infinity=False))
def test_quantities_round_trip_exactly(unit: str, value: float) -> None:
    assert parse_quantity(format_quantity(value, unit), unit) == value


@given(st.integers(0, 2**62))
def test_bytes_round_trip_exactly(value: int) -> None:
    assert parse_bytes(format_bytes(value)) == value


@given(st.decimals(0, 10**6, places=3), st.sampled_from([("kB", 10**3), ("MiB", 2**20), ("B", 1)]))
def test_bytes_agree_with_decimal_arithmetic(number: Decimal, unit: tuple[str, int]) -> None:
    exact = number * unit[1]
    if exact == exact.to_integral_value():
        assert parse_bytes(f"{number} {unit[0]}") == int(exact)
    else:
        with pytest.raises(ValueError, match="whole number"):
            parse_bytes(f"{number} {unit[0]}")


@given(st.text())
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    for candidate in (text, f"1{text}", f"{text}GB/s"):
        try:
            value = parse_quantity(candidate, "B/s")
        except ValueError:
            continue
        assert value >= 0


def test_bytes_for_people() -> None:
    assert [show_bytes(n) for n in (0, 1023, 1024, 4097473536)] == ["0 B", "1023 B", "1 KiB", "3.816 GiB"]


def test_formatted_text_is_plain_toml_that_others_could_read() -> None:
    text = format_machine(parse_machine(GOOD))
    assert 'clock = "3.5 GHz"' in text
    assert 'latency = "20 us"' in text
    assert json.loads(next(line for line in text.splitlines() if line.startswith("source")).partition("= ")[2])


NODES = """
name = "nodes"
[network]
bandwidth = "25 GB/s"
latency = "2 us"
rack = 2
oversubscription = 4
source = "asked for"
[[memory]]
name = "box"
[[device]]
name = "node"
count = 5
kind = "node"
memory = "own"
compute_units = 64
clock = "2 GHz"
flops = "1 TFLOP/s"
bandwidth = "200 GB/s"
global_memory = "256 GiB"
[device.source]
clock = "a guess"
[[device]]
name = "gpu"
kind = "gpu"
memory = "own"
compute_units = 64
clock = "2 GHz"
flops = "1 TFLOP/s"
bandwidth = "200 GB/s"
global_memory = "256 GiB"
[[link]]
from = "box"
to = "gpu"
both_ways = true
bandwidth = "10 GB/s"
latency = "5 us"
"""


def test_several_nodes_on_a_network() -> None:
    machine = parse_machine(NODES)
    assert [(d.name, d.memory) for d in machine.devices] == [*((f"node{i}", 2 + i) for i in range(5)), ("gpu", 7)]
    assert len({replace(d, name="", memory=0) for d in machine.devices[:5]}) == 1
    assert machine.network == Network(25e9, 2e-6, 2, 4.0)
    assert machine.joined == frozenset(range(7))
    assert machine.link(HOST, 3) == Link(HOST, 3, 25e9, 2e-6)
    assert machine.link(HOST, 7) is None
    assert machine.routes.between(3, 6) == ((3, 6),)
    assert machine.routes.between(3, 7) == ((3, 1), (1, 7))
    assert [machine.network.rack_of(m) for m in range(6)] == [-1, 0, 0, 1, 1, 2]
    assert machine.notes == {"network": "asked for", "node.clock": "a guess"}
    again = format_machine(machine)
    assert parse_machine(again) == machine
    assert again.count("[[device]]") == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("count = 5", "count = 0", "device 1.count"),
        ("rack = 2", "rack = 2.5", "network.rack"),
        ("oversubscription = 4", "oversubscription = 0.5", "network.oversubscription"),
        ('latency = "2 us"', "", "network.latency"),
        ("rack = 2", "racks = 2", "network.racks"),
        ('name = "gpu"', 'name = "node3"', "device 2.name"),
        ('to = "gpu"', 'to = "node"', "link 1.to"),
        ('from = "box"', 'from = "host"\nchunk = 3', "link 1.chunk"),
    ],
)
def test_mistakes_in_networks(old: str, new: str, said: str) -> None:
    assert NODES.count(old) >= 1
    with pytest.raises(MachineError, match=re.escape(said)):
        parse_machine(NODES.replace(old, new, 1))
