"""Rules of who finds whom, and who may reach whom."""

import ipaddress

from . import project
from .manifests import rule, selects, variables
from .shapes import name_of


@rule
def selectors_find_their_pods(manifests):
    for component, document, spec, _ in manifests.deployments():
        selectors = [document["spec"]["selector"]]
        selectors += [constraint["labelSelector"] for constraint in spec["topologySpreadConstraints"]]
        for selector in selectors:
            if manifests.selected(selector) != {component}:
                yield f"{name_of(document)}: a selector takes pods of {sorted(manifests.selected(selector))}"
        keys = {constraint["topologyKey"] for constraint in spec["topologySpreadConstraints"]}
        if keys != {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}:
            yield f"{name_of(document)}: is spread over {sorted(keys)}"
    for document in manifests.of("Service"):
        if manifests.selected({"matchLabels": document["spec"]["selector"]}) != {"api-service"}:
            yield f"{name_of(document)}: leads to {sorted(manifests.selected({'matchLabels': document['spec']['selector']}))}"
    for document in manifests.of("PodMonitor"):
        if manifests.selected(document["spec"]["selector"]) != set(project.SERVICES):
            yield f"{name_of(document)}: reads {sorted(manifests.selected(document['spec']['selector']))}"
    for document in manifests.of("PodDisruptionBudget", "NetworkPolicy"):
        selector = document["spec"].get("podSelector") or document["spec"]["selector"]
        component = document["metadata"]["labels"]["app.kubernetes.io/component"]
        if manifests.selected(selector) != {component}:
            yield f"{name_of(document)}: is about pods of {sorted(manifests.selected(selector))}"


@rule
def ports_have_their_names(manifests):
    ports = {}
    for component, _, _, container in manifests.deployments():
        ports[component] = {port["name"]: port["containerPort"] for port in container["ports"]}
        listened = {"ops": "WEBHOOKS__OPS__LISTEN", "http": "WEBHOOKS__API__LISTEN"}
        for name, number in ports[component].items():
            if not variables(container)[listened[name]]["value"].endswith(f":{number}"):
                yield f"{component}: the port {name} is {number}, and the process listens elsewhere"
    for document in manifests.of("Service"):
        for port in document["spec"]["ports"]:
            if port["targetPort"] not in ports["api-service"]:
                yield f"{name_of(document)}: api-service has no port {port['targetPort']}"
        for route in manifests.of("Ingress", "HTTPRoute"):
            if document["metadata"]["name"] not in str(route["spec"]):
                yield f"{name_of(route)}: does not lead to {document['metadata']['name']}"
    for document in manifests.of("PodMonitor"):
        for endpoint in document["spec"]["podMetricsEndpoints"]:
            if any(endpoint["port"] not in named for named in ports.values()):
                yield f"{name_of(document)}: not every service has a port {endpoint['port']}"


@rule
def names_are_short_and_unique(manifests):
    names = [name_of(document) for document in manifests.documents]
    for name in names:
        # The HPA that KEDA makes is called keda-hpa-NAME.
        if len(name.split()[1]) > 54 or names.count(name) > 1:
            yield f"{name}: is too long, or there twice"


@rule
def every_pod_has_a_network_policy(manifests):
    policies = manifests.of("NetworkPolicy")
    if manifests.value("networkPolicy.enabled", True) != bool(policies):
        yield "networkPolicy.enabled does not decide"
        return
    if not policies:
        return
    for document, labels, _, _ in manifests.pods():
        found = [policy for policy in policies if selects(policy["spec"]["podSelector"], labels)]
        if len(found) != 1 or found[0]["spec"]["policyTypes"] != ["Ingress", "Egress"]:
            yield f"{name_of(document)}: {len(found)} NetworkPolicies are about it"


def blocks(policy):
    for rule in policy["spec"].get("egress", []):
        for peer in rule["to"]:
            if "ipBlock" in peer:
                yield peer["ipBlock"], rule


def behind_nat64(network):
    """The IPv6 addresses by which a NAT64 gateway reaches an IPv4 network; another network itself."""
    if network.version == 6:
        return network
    base = int(ipaddress.ip_address("64:ff9b::"))
    return ipaddress.ip_network((base + int(network.network_address), 96 + network.prefixlen))


@rule
def dispatchers_alone_reach_the_internet(manifests):
    v4, v6 = project.refused_networks()
    behind = {behind_nat64(network) for network in v4}
    own = list(map(ipaddress.ip_network, manifests.value("networkPolicy.receivers.except", [])))
    own += [behind_nat64(network) for network in own]
    for policy in manifests.of("NetworkPolicy"):
        for rule in policy["spec"].get("egress", []):
            if not rule.get("to") or not rule.get("ports"):
                yield f"{name_of(policy)}: a rule allows every address or every port"
        wide = {block["cidr"]: block.get("except", []) for block, _ in blocks(policy)}
        if policy["metadata"]["labels"]["app.kubernetes.io/component"] != "dispatcher":
            if {"0.0.0.0/0", "::/0", "2000::/3", "64:ff9b::/96"} & wide.keys():
                yield f"{name_of(policy)}: it has no business in the internet"
            continue
        for cidr, refused in (("0.0.0.0/0", v4), ("2000::/3", v6), ("64:ff9b::/96", behind)):
            excepted = {ipaddress.ip_network(network) for network in wide.get(cidr, [])}
            open_to = [network for network in refused if not any(network.subnet_of(other) for other in excepted)]
            if cidr not in wide or open_to:
                yield f"{name_of(policy)}: {cidr} lacks exceptions: {sorted(map(str, open_to))}"
            for network in own:
                whole = ipaddress.ip_network(cidr)
                if network.version == whole.version and network.subnet_of(whole) and network not in excepted:
                    yield f"{name_of(policy)}: networkPolicy.receivers.except lacks {network}"
            # The API server refuses an exception outside of its block.
            for network in excepted:
                if not network.subnet_of(ipaddress.ip_network(cidr)):
                    yield f"{name_of(policy)}: {network} is not within {cidr}"
        text = manifests.value("settings.egress.allowed_networks", [])
        for network in text if isinstance(text, list) else text.split(","):
            if network not in wide:
                yield f"{name_of(policy)}: egress.allowed_networks has {network}, and the policy has not"


@rule
def who_may_enter_is_named(manifests):
    for policy in manifests.of("NetworkPolicy"):
        component = policy["metadata"]["labels"]["app.kubernetes.io/component"]
        entries = policy["spec"].get("ingress") or []
        ports = {port["port"] for entry in entries for port in entry["ports"]}
        if any(not entry.get("from") for entry in entries):
            yield f"{name_of(policy)}: everybody may enter"
        allowed = {"api-service": {"http", "ops"}, "migration": set(), "doctor": set()}.get(component, {"ops"})
        if ports - allowed:
            yield f"{name_of(policy)}: lets in to {sorted(ports)}"
        if component == "api-service" and bool(manifests.value("networkPolicy.apiFrom")) != ("http" in ports):
            yield f"{name_of(policy)}: networkPolicy.apiFrom does not decide"
