"""Rules of how many processes there are."""

import re

from . import project
from .manifests import rule
from .shapes import name_of


@rule
def keda_alone_sets_the_number(manifests):
    on = manifests.value("keda.enabled", False)
    scaled = {document["spec"]["scaleTargetRef"]["name"]: document for document in manifests.of("ScaledObject")}
    if on != bool(scaled) or (on and len(scaled) != 2):
        yield f"KEDA is {'on' if on else 'off'}, and there are {len(scaled)} ScaledObjects"
    for component, document, _, _ in manifests.deployments():
        values = {"api-service": "apiService", "event-ingest": "eventIngest"}.get(component, component)
        stopped = manifests.value(f"{values}.stopped", False)
        scaler = scaled.pop(document["metadata"]["name"], None)
        if scaler is None and document["spec"].get("replicas") != (0 if stopped else manifests.value(f"{values}.replicas")):
            yield f"{component}: has {document['spec'].get('replicas')} replicas"
        if scaler is not None and "replicas" in document["spec"]:
            yield f"{component}: KEDA and its Deployment both set the number of replicas"
        paused = scaler and (scaler["metadata"].get("annotations") or {}).get("autoscaling.keda.sh/paused-replicas")
        if scaler is not None and paused != ("0" if stopped else None):
            yield f"{component}: is {'' if stopped else 'not '}stopped, and KEDA has {paused!r} replicas"
    for name in scaled:
        yield f"a ScaledObject is about {name}, which is no Deployment"


@rule
def keda_looks_at_the_right_queues(manifests):
    prefix = manifests.value("settings.broker.prefix", "webhooks")
    wanted = {"event-ingest": ["events"], "dispatcher": ["deliveries"]}
    if manifests.value("keda.dispatcher.bulkMessages", 0):
        wanted["dispatcher"].append("deliveries.bulk")
    for document in manifests.of("ScaledObject"):
        component = document["metadata"]["labels"]["app.kubernetes.io/component"]
        triggers = [trigger["metadata"] for trigger in document["spec"]["triggers"] if trigger["type"] == "rabbitmq"]
        asked = [trigger["queueName"].removeprefix(f"{prefix}.") for trigger in triggers]
        if asked != wanted[component] or set(asked) - project.queues():
            yield f"{component}: is scaled by the queues {asked} of prefix {prefix}"
        for trigger in triggers:
            # Over amqp KEDA knows this mode alone; another one, and it refuses the ScaledObject.
            if (trigger.get("protocol"), trigger.get("mode")) != ("amqp", "QueueLength") or "host" in trigger:
                yield f"{component}: KEDA is asked for {trigger}"
        if document["spec"]["minReplicaCount"] < 1:
            yield f"{component}: scaled to nothing it would do no upkeep, and show no metrics"
        down = document["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
        slow = [policy["type"] == "Pods" and policy["value"] == 1 and policy["periodSeconds"] >= 60 for policy in down["policies"]]
        if down["stabilizationWindowSeconds"] < 300 or slow != [True]:
            yield f"{component}: is scaled down too quickly: {down}"
    for document in manifests.of("TriggerAuthentication"):
        for reference in document["spec"].get("configMapTargetRef", []):
            maps = {found["metadata"]["name"]: found["data"] for found in manifests.of("ConfigMap")}
            if reference["key"] not in maps.get(reference["name"], {}):
                yield f"{name_of(document)}: there is no {reference['key']} in ConfigMap {reference['name']}"
        if {reference["parameter"] for reference in document["spec"]["secretTargetRef"]} - {"host", "ca", "cert", "key"}:
            yield f"{name_of(document)}: hands over what KEDA does not know"


def prometheus_triggers(manifests):
    for document in manifests.of("ScaledObject"):
        for trigger in document["spec"]["triggers"]:
            if trigger["type"] == "prometheus":
                yield document, trigger


@rule
def keda_asks_prometheus_for_what_exists(manifests):
    known = project.metrics()
    found = set()
    for document, trigger in prometheus_triggers(manifests):
        found.add(trigger["name"])
        query = trigger["metadata"]["query"]
        for name, matchers in re.findall(r"(webhooks_\w+)\{([^}]*)\}", query):
            if name not in known:
                yield f"{name_of(document)}: asks for {name}, which deploy/metrics.md does not have"
            for label in re.findall(r"(\w+)=", matchers):
                if label not in known.get(name, {label}) | {"namespace"}:
                    yield f"{name_of(document)}: asks for {name} by {label}, which deploy/metrics.md does not have"
        if 'namespace="' not in query:
            yield f"{name_of(document)}: asks for other installations' metrics as well"
        if "slow" in query:
            yield f"{name_of(document)}: the slow lane must not scale"
        if trigger["metadata"].get("ignoreNullValues") != "false":
            yield f"{name_of(document)}: lost metrics would scale it down"
    if manifests.value("keda.enabled") and manifests.value("keda.prometheus.serverAddress"):
        if found != {"delay", "slots"}:
            yield f"dispatchers are scaled by Prometheus' {sorted(found)}"


@rule
def nobody_has_to_wait_for_a_budget_of_none(manifests):
    budgets = {document["metadata"]["labels"]["app.kubernetes.io/component"] for document in manifests.of("PodDisruptionBudget")}
    if budgets != (set(project.SERVICES) if manifests.value("podDisruptionBudget.enabled", True) else set()):
        yield f"there are budgets for {sorted(budgets)}"
    for document in manifests.of("PodDisruptionBudget"):
        if document["spec"].get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
            yield f"{name_of(document)}: nodes cannot be drained while the database is away"
