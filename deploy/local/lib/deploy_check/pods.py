"""Rules of what runs: its end, its probes, its settings, its rights."""

import re

from . import project
from .manifests import rule, variables
from .shapes import name_of


@rule
def a_pod_has_longer_to_end_than_its_process(manifests):
    default = project.settings()["WEBHOOKS__SHUTDOWN__DEADLINE"].default
    for component, _, spec, container in manifests.deployments():
        deadline = variables(container).get("WEBHOOKS__SHUTDOWN__DEADLINE", {"value": default})["value"]
        pause = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        # Two seconds after its deadline a process gives up by itself (service-kit).
        needed, given = project.seconds(deadline) + 2 + pause, spec.get("terminationGracePeriodSeconds", 30)
        if given <= needed:
            yield f"{component}: {given} s to end, and its process may need {needed} s"
        if component == "api-service" and pause != manifests.value("apiService.drainSeconds", 5):
            yield f"{component}: goes on for {pause} s after its end was decided"


@rule
def probes_ask_different_questions(manifests):
    for component, _, _, container in manifests.deployments():
        live, ready, start = (container[f"{probe}Probe"] for probe in ("liveness", "readiness", "startup"))
        if live["httpGet"]["path"] != "/healthz" or start["httpGet"]["path"] != "/healthz":
            yield f"{component}: a database that is away must not restart a process: ask /healthz"
        if ready["httpGet"]["path"] != "/readyz":
            yield f"{component}: readiness is what /readyz says"
        if ready.get("timeoutSeconds", 1) <= 2:
            yield f"{component}: /readyz takes up to 2 s, and the probe waits for {ready.get('timeoutSeconds', 1)} s"


@rule
def nothing_secret_is_in_the_manifests(manifests):
    for document in manifests.of("Secret"):
        yield f"{name_of(document)}: secrets are made by operators, and referred to"
    sensitive = {setting.variable for setting in project.settings().values() if setting.sensitive}
    for document, _, _, container in manifests.pods():
        for name, variable in variables(container).items():
            text = re.sub(r"\$\([A-Z_]+\)", "", variable.get("value", ""))
            if name in sensitive and "value" in variable and "$(" not in variable["value"]:
                yield f"{name_of(document)}: {name} is in clear text"
            if re.search(r"://[^/@,]*[^/@,:][^/@,]*@", text):
                yield f"{name_of(document)}: {name} has credentials in clear text"


@rule
def variables_are_settings(manifests):
    known = project.settings()
    for document, _, _, container in manifests.pods():
        names = [variable["name"] for variable in container["env"]]
        for name in names:
            if name.startswith("WEBHOOKS") and name not in known:
                yield f"{name_of(document)}: {name} is no setting"
            if names.count(name) > 1:
                yield f"{name_of(document)}: {name} is set twice"
        for name, variable in variables(container).items():
            if re.fullmatch(r"[\d.]+e[+-]\d+", variable.get("value", "")):
                yield f"{name_of(document)}: {name} is written as {variable['value']}"
            # The kubelet fills in what was defined before.
            for used in re.findall(r"\$\((\w+)\)", variable.get("value", "")):
                if used not in names[: names.index(name)]:
                    yield f"{name_of(document)}: {name} uses {used}, which is not defined before it"


@rule
def processes_have_the_secrets_that_they_need(manifests):
    for document, labels, _, container in manifests.pods():
        component, found = labels["app.kubernetes.io/component"], set(variables(container))
        for needed in ("WEBHOOKS__DATABASE__URL", "WEBHOOKS__BROKER__URL"):
            if needed not in found:
                yield f"{name_of(document)}: lacks {needed}"
        opens = component in ("api-service", "dispatcher", "doctor")
        if opens != ("WEBHOOKS__SECRETS__KEYS" in found):
            yield f"{name_of(document)}: {'lacks' if opens else 'does not need'} the sealing keys"


@rule
def files_are_mounted(manifests):
    for document, _, spec, container in manifests.pods():
        files = set()
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            if "subPath" in mount:
                yield f"{name_of(document)}: a file by subPath is not replaced when its Secret is"
            volume = volumes.pop(mount["name"])
            content = volume.get("secret") or volume["configMap"]
            files |= {f"{mount['mountPath']}/{item['path']}" for item in content["items"]}
        for name in volumes:
            yield f"{name_of(document)}: the volume {name} is not mounted"
        for name, variable in variables(container).items():
            for file in re.findall(r"/etc/webhooks/[\w./-]+", variable.get("value", "")):
                if file not in files:
                    yield f"{name_of(document)}: {name} names {file}, which is not mounted"


@rule
def pods_have_no_rights(manifests):
    user = manifests.value("podSecurityContext.runAsUser", 0)
    for document, _, spec, container in manifests.pods():
        pod, own = spec.get("securityContext", {}), container.get("securityContext", {})
        right = (
            pod.get("runAsNonRoot") is True
            and pod.get("seccompProfile") == {"type": "RuntimeDefault"}
            and own.get("allowPrivilegeEscalation") is False
            and own.get("readOnlyRootFilesystem") is True
            and own.get("capabilities") == {"drop": ["ALL"]}
        )
        if not right or pod.get("runAsUser", 1) == 0:
            yield f"{name_of(document)}: its security context allows too much"
        if user and pod.get("runAsUser") != user:
            yield f"{name_of(document)}: runs as {pod.get('runAsUser')}"
        if spec.get("automountServiceAccountToken") is not False or spec.get("enableServiceLinks") is not False:
            yield f"{name_of(document)}: gets a token of the API server, or variables of others' Services"


@rule
def pods_ask_for_what_they_use(manifests):
    for document, _, _, container in manifests.pods():
        resources = container.get("resources", {})
        if {"cpu", "memory"} - resources.get("requests", {}).keys() or "memory" not in resources.get("limits", {}):
            yield f"{name_of(document)}: asks for no CPU or memory, or has no limit of memory"
        if "cpu" in resources.get("limits", {}):
            yield f"{name_of(document)}: a limit of CPU makes deliveries late without any other effect"


@rule
def the_migration_brings_what_it_needs(manifests):
    def weight(document):
        notes = document["metadata"].get("annotations") or {}
        return int(notes["helm.sh/hook-weight"]) if notes.get("helm.sh/hook") == "pre-install,pre-upgrade" else None

    jobs = manifests.of("Job")
    if len(jobs) != (1 if manifests.value("migration.enabled", True) else 0):
        yield f"there are {len(jobs)} Jobs"
    for job in jobs:
        if weight(job) is None:
            yield f"{name_of(job)}: is no hook of installation and upgrade"
            continue
        if job["metadata"]["annotations"]["helm.sh/hook-delete-policy"] != "before-hook-creation":
            yield f"{name_of(job)}: its log is gone when it is asked for"
        account = job["spec"]["template"]["spec"]["serviceAccountName"]
        for document in manifests.of("ServiceAccount", "NetworkPolicy"):
            mine = document["kind"] == "ServiceAccount" and document["metadata"]["name"] == account
            mine = mine or document["metadata"]["name"] == job["metadata"]["name"]
            if mine and (weight(document) is None or weight(document) >= weight(job)):
                yield f"{name_of(document)}: is not there yet when the Job begins"


@rule
def commands_are_programs_of_the_image(manifests):
    programs = {"api-service", "event-ingest", "dispatcher", "webhookctl"}
    text = project.CONTAINERFILE.read_text() if project.CONTAINERFILE.exists() else ""
    user = re.search(r"^USER (\d+)", text, re.MULTILINE)
    for document, _, spec, container in manifests.pods():
        if container["command"][0] not in programs or (text and container["command"][0] not in text):
            yield f"{name_of(document)}: the image has no {container['command'][0]}"
        if user and spec["securityContext"].get("runAsUser", int(user[1])) != int(user[1]):
            yield f"{name_of(document)}: the image is made for the user {user[1]}"
