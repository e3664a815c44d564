"""deploy/helm/examples: servers, and values of the chart that fit them."""

import re

import yaml

from . import project
from .helm import Refused, merged
from .rules import RULES, Manifests
from .shapes import builtin, name_of

CUSTOM = ("RabbitmqCluster", "Cluster")


def documents():
    found = []
    for name in ("rabbitmq.yaml", "postgres.yaml", "monitors.yaml"):
        found += list(yaml.safe_load_all((project.EXAMPLES / name).read_text()))
    return found


def faults(helm):
    path = project.EXAMPLES / "values.yaml"
    servers = {document["kind"]: document for document in documents() if document["kind"] in CUSTOM}
    values = yaml.safe_load(path.read_text())
    try:
        made = helm.template(path)
    except Refused as error:
        yield f"values.yaml: {error}"
        return
    yield from builtin([document for document in documents() if document["kind"] not in CUSTOM])
    defaults = yaml.safe_load((project.CHART / "values.yaml").read_text())
    manifests = Manifests(made, merged(defaults, values))
    for rule in RULES:
        yield from (f"values.yaml: {fault}" for fault in rule(manifests))
    yield from broker(servers["RabbitmqCluster"], values)
    yield from database(servers["Cluster"], values)
    yield from watched(helm, path, merged(defaults, values))


def watched(helm, path, values):
    """What watches: the values keep the rules as well, and each server has a monitor."""
    further = project.EXAMPLES / "watched.yaml"
    manifests = Manifests(helm.template(path, further), merged(values, yaml.safe_load(further.read_text())))
    for rule in RULES:
        yield from (f"watched.yaml: {fault}" for fault in rule(manifests))
    if len(manifests.of("PrometheusRule")) != 2 or not manifests.of("PodMonitor"):
        yield "watched.yaml: not all is watched"
    monitors = {document["metadata"]["name"]: document["spec"] for document in documents() if document["kind"] == "PodMonitor"}
    for policy, port in ("database", "metrics"), ("broker", "prometheus"):
        [peer] = values["networkPolicy"][policy]["to"]
        if not any(spec["selector"] == peer["podSelector"] and spec["podMetricsEndpoints"][0]["port"] == port
                   for spec in monitors.values()):
            yield f"monitors.yaml: nothing scrapes the {policy}"


def broker(cluster, values):
    name, spec = cluster["metadata"]["name"], cluster["spec"]
    config = spec["rabbitmq"]["additionalConfig"]
    # What the reference set-up of deploy/production.md names.
    text = (project.ROOT / "deploy/production.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| RabbitMQ | three nodes"))
    for setting in re.findall(r"`([a-z_]+ = \w+)`", row):
        if setting not in config:
            yield f"{name_of(cluster)}: lacks {setting}"
    if spec["replicas"] != 3 or "net_ticktime, 12" not in spec["rabbitmq"]["advancedConfig"]:
        yield f"{name_of(cluster)}: is not the reference set-up"
    nodes = [f"{name}-server-{number}.{name}-nodes" for number in range(spec["replicas"])]
    hosts = re.findall(r"@([\w.-]+):5672", values["broker"]["url"])
    if hosts != nodes or values["broker"]["existingSecret"] != f"{name}-default-user":
        yield f"values.yaml: its broker is not {nodes}"
    peers = [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}]
    if values["networkPolicy"]["broker"] != {"to": peers, "ports": [5672, 15672]}:
        yield f"values.yaml: its policy does not lead to {name}"
    if values["settings"]["broker"]["management_url"] != f"http://{name}:15672":
        yield f"values.yaml: the doctor does not find {name}"


def database(cluster, values):
    name, spec = cluster["metadata"]["name"], cluster["spec"]
    replication = spec["postgresql"]["synchronous"]
    if spec["instances"] != 3 or (replication["method"], replication["number"]) != ("any", 1):
        yield f"{name_of(cluster)}: is not the reference set-up"
    if replication["dataDurability"] != "required":
        yield f"{name_of(cluster)}: may lose what was accepted"
    wanted = f"@{name}-rw:5432/{spec['bootstrap']['initdb']['database']}"
    secrets = (values["database"]["existingSecret"], values["database"]["tls"]["existingSecret"])
    if not values["database"]["url"].endswith(wanted) or secrets != (f"{name}-app", f"{name}-ca"):
        yield f"values.yaml: its database is not {name}"
    # Every process, at the largest numbers that the chart's values have.
    defaults = yaml.safe_load((project.CHART / "values.yaml").read_text())
    processes = defaults["apiService"]["replicas"] + sum(
        defaults["keda"][part]["maxReplicas"] for part in ("dispatcher", "eventIngest"))
    each = int(project.settings()["WEBHOOKS__DATABASE__MAX_CONNECTIONS"].default)
    needed = processes * each + defaults["keda"]["eventIngest"]["maxReplicas"]
    # "A limit of connections" in deploy/production.md.
    owner = {"name": spec["bootstrap"]["initdb"]["owner"], "login": True, "connectionLimit": 2 * needed + 10}
    if spec["managed"]["roles"] != [owner]:
        yield f"{name_of(cluster)}: the role of the services is not {owner}"
    if int(spec["postgresql"]["parameters"]["max_connections"]) < owner["connectionLimit"] + 20:
        yield f"{name_of(cluster)}: few connections are left for others than the services"
    if values["networkPolicy"]["database"]["to"] != [{"podSelector": {"matchLabels": {"cnpg.io/cluster": name}}}]:
        yield f"values.yaml: its policy does not lead to {name}"
