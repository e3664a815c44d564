"""Where things are, and what other files of the project say."""

import functools
import ipaddress
import os
import pathlib
import re
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[4]
# Where the tools are.
FOLDER = pathlib.Path(os.environ["FOLDER"])
CHART = ROOT / "deploy/helm/webhooks"
EXAMPLES = ROOT / "deploy/helm/examples"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
SERVERS = ROOT / "deploy/prometheus/servers.yml"
DASHBOARDS = ROOT / "deploy/grafana/dashboards"
CONTAINERFILE = ROOT / "deploy/Containerfile"
DEFAULTS = ROOT / "crates/service-kit/src/settings/defaults.toml"
RUNBOOKS = "https://docs.example.com/webhooks/runbooks.md"
SERVICES = ("api-service", "event-ingest", "dispatcher")


@dataclass(frozen=True)
class Setting:
    section: str
    key: str
    default: str | None
    sensitive: bool

    @property
    def variable(self):
        return f"WEBHOOKS__{self.section.upper()}__{self.key.upper()}"


@functools.cache
def settings():
    """Every setting of the service, by the name of its environment variable."""
    found, section = {}, None
    for line in DEFAULTS.read_text().splitlines():
        if header := re.match(r"\[(\w+)\]", line):
            section = header[1]
        elif entry := re.match(r'(# )?(\w+) = ("[^"]*"|[^#]*?)\s*(#.*)?$', line):
            default = None if entry[1] else entry[3].strip('"')
            setting = Setting(section, entry[2], default, "sensitive" in (entry[4] or ""))
            found[setting.variable] = setting
    assert len(found) > 40, "defaults.toml is not written as this expects"
    return found


@functools.cache
def queues():
    """The queues that the services declare, without their prefix."""
    text = (ROOT / "crates/broker/src/topology.rs").read_text()
    return set(re.findall(r'format!\("\{\}\.([a-z.]+)", self\.prefix\)', text))


@functools.cache
def refused_networks():
    """What the service itself refuses to send to: (IPv4, IPv6 within 2000::/3)."""
    text = (ROOT / "crates/domain/src/address.rs").read_text()
    v4 = {f"{a}.{b}.{c}.{d}/{p}" for a, b, c, d, p in re.findall(r"\(v4\((\d+), (\d+), (\d+), (\d+), (\d+)\)", text)}
    v6 = set()
    for a, b, c, prefix in re.findall(r"\(v6\((\w+), (\w+), (\w+), (\d+)\)", text):
        groups = ":".join(f"{int(group, 0):x}" for group in (a, b, c))
        network = ipaddress.ip_network(f"{groups}::/{prefix}")
        if network.subnet_of(ipaddress.ip_network("2000::/3")):
            v6.add(network)
    assert len(v4) > 10 and len(v6) > 2, "address.rs is not written as this expects"
    return {ipaddress.ip_network(network) for network in v4}, v6


@functools.cache
def metrics():
    """The labels of each metric, by its name with the ending that Prometheus sees."""
    found = {}
    for line in (ROOT / "deploy/metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 4 and cells[1].startswith("`webhooks_"):
            name, kind = cells[1].strip("`"), cells[2]
            endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "info": ["_info"]}
            for ending in endings.get(kind, [""]):
                bucket = {"le"} if ending == "_bucket" else set()
                found[name + ending] = set(re.findall(r"`(\w+)`", cells[3])) | bucket
    assert len(found) > 30, "metrics.md is not written as this expects"
    return found


def delay_bounds():
    """The upper bounds of the classes of first attempts' delay, as the metric's label `le` has them."""
    texts = {"SECONDS": "crates/service-kit/src/metrics.rs", "LONG_SECONDS": "crates/dispatcher/src/metrics.rs"}
    found = []
    for name, path in texts.items():
        values = re.search(rf"const {name}: \[f64; \d+\] =\s*\[([^]]*)\]", (ROOT / path).read_text())
        assert values, f"{path} has no {name}"
        found += [float(value) for value in values[1].split(",") if value.strip()]
    return found


def seconds(text):
    """A duration as humantime reads it."""
    units = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
    parts = re.findall(r"(\d+)\s*([a-z]+)", text)
    assert parts, f"{text!r} is no duration"
    return sum(int(number) * units[unit] for number, unit in parts)
