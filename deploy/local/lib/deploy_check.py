"""Checks the manifests of the Helm chart. deploy/local/deploy-check installs the tools in FOLDER and runs it."""

import ipaddress
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = pathlib.Path(os.environ["FOLDER"])
CHART, EXAMPLES = ROOT / "deploy/helm/webhooks", ROOT / "deploy/helm/examples"
HELMS = [FOLDER / name for name in ("helm-4", "helm-3") if (FOLDER / name).exists()]
# The oldest version of Kubernetes that Chart.yaml allows, and the newest whose schemas are installed.
KUBERNETES = ("1.30", kubernetes_validate.latest_version())
# Kinds of other projects, and the npm packages with their types.
TYPES = {
    "ScaledObject": "keda/keda.sh/v1alpha1",
    "TriggerAuthentication": "keda/keda.sh/v1alpha1",
    "PodMonitor": "prometheus-operator/monitoring.coreos.com/v1",
    "PrometheusRule": "prometheus-operator/monitoring.coreos.com/v1",
    "HTTPRoute": "gateway-api/gateway.networking.k8s.io/v1",
}
# Kinds of the examples without a package.
UNCHECKED = ("Cluster", "RabbitmqCluster")


def run(*words, folder=None):
    done = subprocess.run(list(map(str, words)), cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr + done.stdout


def helm(program, command, *files):
    release = ["webhooks"] if command[0] == "template" else []
    return run(program, *command, *release, CHART, "--namespace", "hooks", *(f"--values={file}" for file in files))


def name_of(document):
    return f"{document['kind']} {document['metadata']['name']}"


def builtin(documents):
    """Yields what Kubernetes' own schemas refuse, unknown fields included."""
    for document in documents:
        for version in KUBERNETES:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
                where = ".".join(map(str, getattr(error, "path", "")))
                yield f"{name_of(document)}, Kubernetes {version}: {where}: {getattr(error, 'message', error)}"


def custom(documents):
    """Yields what the types of other projects refuse, unknown fields included. Each document is a line of the program."""
    lines = [f"import type {{ I{kind} }} from '@kubernetes-models/{path}/{kind}';" for kind, path in TYPES.items()]
    lines += [f"export const d{n}: I{d['kind']} = {json.dumps(d)};" for n, d in enumerate(documents)]
    (FOLDER / "npm/manifests.ts").write_text("\n".join(lines))
    options = "--noEmit --strict --skipLibCheck --pretty false --module esnext --moduleResolution bundler --target es2022"
    code, _, text = run("node", "node_modules/typescript/bin/tsc", *options.split(), "manifests.ts", folder=FOLDER / "npm")
    for line in text.splitlines() if code else []:
        number = re.match(r"manifests.ts\((\d+)", line)
        index = int(number[1]) - len(TYPES) - 1 if number else -1
        yield f"{name_of(documents[index])}: {line.partition(': ')[2]}" if index >= 0 else line


def schemas(documents):
    known = [document for document in documents if document["kind"] not in UNCHECKED]
    yield from builtin([document for document in known if document["kind"] not in TYPES])
    yield from custom([document for document in known if document["kind"] in TYPES])


def rules(documents):
    """Yields what promtool refuses of the alerts, in which the chart writes its namespace."""
    for document in documents:
        if document["kind"] == "PrometheusRule":
            with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
                json.dump(document["spec"], file)
                file.flush()
                code, _, text = run("promtool", "check", "rules", file.name)
            if code:
                yield f"{name_of(document)}: {text}"


def behind_nat64(network):
    base = int(ipaddress.ip_address("64:ff9b::"))
    return ipaddress.ip_network((base + int(network.network_address), 96 + network.prefixlen))


def refused_networks(own):
    """Returns the networks that no dispatcher may reach, those of the values included, by the block that opens them."""
    text = (ROOT / "crates/domain/src/address.rs").read_text()
    v4 = [".".join(parts[:4]) + "/" + parts[4] for parts in re.findall(r"\(v4\(" + r"(\d+), " * 4 + r"(\d+)\)", text)]
    v6 = re.findall(r"\(v6\((?:0x)?(\w+), (?:0x)?(\w+), (?:0x)?(\w+), (\d+)\)", text)
    assert len(v4) > 10 and len(v6) > 5, "address.rs is not written as this expects"
    networks = list(map(ipaddress.ip_network, [*v4, *(f"{a}:{b}:{c}::/{prefix}" for a, b, c, prefix in v6), *own]))
    v4, public = [network for network in networks if network.version == 4], ipaddress.ip_network("2000::/3")
    v6 = [network for network in networks if network.version == 6 and network.subnet_of(public)]
    return {"0.0.0.0/0": v4, "64:ff9b::/96": list(map(behind_nat64, v4)), str(public): v6}


def open_networks(documents, own):
    """Yields what a NetworkPolicy opens although the service refuses it. No tool knows these addresses."""
    policies = [document for document in documents if document["kind"] == "NetworkPolicy"]
    components = [policy["metadata"]["labels"]["app.kubernetes.io/component"] for policy in policies]
    if policies and components.count("dispatcher") != 1:
        yield f"policies of {components}, where the dispatcher needs one"
    for policy, component in zip(policies, components):
        is_dispatcher = component == "dispatcher"
        rules = policy["spec"].get("egress", [])
        yield from (f"{name_of(policy)}: a rule opens every address or port" for r in rules if not r.get("to") or not r.get("ports"))
        blocks = [peer["ipBlock"] for rule in rules for peer in rule.get("to", []) if "ipBlock" in peer]
        wide = {block["cidr"]: list(map(ipaddress.ip_network, block.get("except", []))) for block in blocks}
        for cidr, refused in refused_networks(own).items():
            if is_dispatcher != (cidr in wide) or "::/0" in wide:
                yield f"{name_of(policy)}: {cidr} is {'open' if cidr in wide else 'closed'}"
            excepted = wide.get(cidr, [])
            lacking = [str(network) for network in refused if not any(network.subnet_of(other) for other in excepted)]
            if is_dispatcher and lacking:
                yield f"{name_of(policy)}: {cidr} lacks exceptions: {lacking}"
            # The API server refuses an exception outside of its block.
            outside = [network for network in excepted if not network.subnet_of(ipaddress.ip_network(cidr))]
            yield from (f"{name_of(policy)}: {network} is not within {cidr}" for network in outside)


def wrong_values():
    """Yields wrong values that the chart accepts, or refuses without the words of wrong_values.yaml."""
    for case in yaml.safe_load((ROOT / "deploy/local/lib/wrong_values.yaml").read_text()):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(case["values"], file)
            file.flush()
            code, _, text = helm(HELMS[0], ["template"], CHART / "ci/minimal.yaml", file.name)
        if not code or case["says"] not in text.replace('\\"', '"'):
            yield f"{case['values']}: {text if code else 'accepted'}"


def main():
    wrong = 0

    def report(what, faults):
        nonlocal wrong
        faults = list(dict.fromkeys(faults))
        wrong += len(faults)
        print(f"  {'wrong' if faults else 'ok':5}  {what}", *faults, sep="\n         ")

    cases = [[path] for path in sorted(CHART.glob("ci/*.yaml"))]
    cases += [[EXAMPLES / "values.yaml"], [EXAMPLES / "values.yaml", EXAMPLES / "watched.yaml"]]
    for files in cases:
        refused, made = [], []
        for program in HELMS:
            lint, template = helm(program, ["lint", "--strict", "--quiet"], *files), helm(program, ["template"], *files)
            refused += [f"{program.name}: {text}" for code, _, text in (lint, template) if code]
            made.append([document for document in yaml.safe_load_all(template[1]) if document])
        if made[0] != made[-1]:
            refused.append("Helm 3 and Helm 4 make different manifests")
        values = yaml.safe_load(files[0].read_text())
        closed = values.get("networkPolicy", {}).get("receivers", {}).get("except", [])
        closed += values.get("settings", {}).get("egress", {}).get("denied_networks", [])
        refused += [*schemas(made[0]), *rules(made[0]), *open_networks(made[0], closed)]
        name = " and ".join(path.stem for path in files)
        report(f"{name}: {len(made[0])} manifests", refused)
    for path in (EXAMPLES / name for name in ("rabbitmq.yaml", "postgres.yaml", "monitors.yaml", "keda.yaml")):
        report(path.name, schemas(list(yaml.safe_load_all(path.read_text()))))
    report("wrong values", wrong_values())
    code, _, text = run(FOLDER / "venv/bin/hadolint", ROOT / "deploy/Containerfile")
    report("Containerfile", [text] if code else [])
    print(f"deploy-check: {wrong or 'nothing'} wrong")
    return 1 if wrong else 0


sys.exit(main())
