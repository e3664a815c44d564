"""Rules of metrics, alerts and dashboards."""

import yaml

from . import project
from .manifests import rule
from .shapes import name_of


@rule
def metrics_keep_their_labels(manifests):
    """What the Prometheus operator adds to each target must not be what a metric has itself."""
    labels = set().union(*project.metrics().values())
    added = {"namespace", "pod", "container", "endpoint", "job", "instance"}
    if manifests.of("ServiceMonitor"):
        added.add("service")
    if clash := added & labels:
        yield f"the operator renames the labels {sorted(clash)} of metrics"


@rule
def alerts_are_those_of_the_project(manifests):
    documents = manifests.of("PrometheusRule")
    on = manifests.value("monitoring.prometheusRule.enabled", False)
    files = [project.ALERTS, project.SERVERS][:(1 + manifests.value("monitoring.prometheusRule.servers", False)) if on else 0]
    if len(documents) != len(files):
        yield f"there are {len(documents)} PrometheusRules"
    url = manifests.value("monitoring.prometheusRule.runbookUrl")
    for document, path in zip(documents, files):
        namespace = document["metadata"]["namespace"]
        text = path.read_text().replace('namespace=""', f'namespace="{namespace}"')
        text = text.replace("labels: {", f"labels: {{namespace: {namespace}, ")
        if document["spec"] != yaml.safe_load(text.replace(project.RUNBOOKS, url)):
            yield f"{name_of(document)}: its rules are not those of deploy/prometheus/{path.name}"
        if "docs.example.com" in str(document):
            yield f"{name_of(document)}: its runbooks are at docs.example.com"


@rule
def dashboards_are_those_of_the_project(manifests):
    found = {}
    for document in manifests.of("ConfigMap"):
        if "-dashboard-" in document["metadata"]["name"]:
            found.update(document["data"])
            if "grafana_dashboard" not in document["metadata"]["labels"]:
                yield f"{name_of(document)}: Grafana's sidecar does not see it"
    on = manifests.value("monitoring.dashboards.enabled", False)
    url = manifests.value("monitoring.prometheusRule.runbookUrl", "") or project.RUNBOOKS
    texts = {path.name: path.read_text() for path in project.DASHBOARDS.glob("*.json")} if on else {}
    wanted = {name: text.replace(project.RUNBOOKS, url) for name, text in texts.items()}
    if {name: text.strip() for name, text in found.items()} != {name: text.strip() for name, text in wanted.items()}:
        yield f"the dashboards are {sorted(found)}, and not deploy/grafana/dashboards"
