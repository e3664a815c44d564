"""Each manifest against the schema of its kind."""

import json
import pathlib
import subprocess

import kubernetes_validate
import yaml

# The oldest that Chart.yaml allows, and the newest whose schemas are there.
OLDEST = "1.30"
# Kinds of other projects, and the package of npm that describes them.
MODELS = {
    ("keda.sh/v1alpha1", "ScaledObject"): "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject",
    ("keda.sh/v1alpha1", "TriggerAuthentication"): "@kubernetes-models/keda/keda.sh/v1alpha1/TriggerAuthentication",
    ("monitoring.coreos.com/v1", "PodMonitor"): "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor",
    ("monitoring.coreos.com/v1", "PrometheusRule"): "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule",
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute",
}


def kind_of(document):
    return document["apiVersion"], document["kind"]


def name_of(document):
    return f"{document['kind']} {document['metadata']['name']}"


def is_builtin(document):
    group = document["apiVersion"].rpartition("/")[0]
    return "." not in group or (group.endswith(".k8s.io") and not group.startswith("gateway."))


def builtin(documents):
    """What Kubernetes' own schemas say, unknown fields included."""
    for version in (OLDEST, kubernetes_validate.latest_version()):
        for document in filter(is_builtin, documents):
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = ".".join(map(str, error.path))
                yield f"{name_of(document)}, Kubernetes {version}: {where}: {error.message}"
            except kubernetes_validate.SchemaNotFoundError:
                yield f"{name_of(document)}: Kubernetes {version} has no {document['apiVersion']} {document['kind']}"


def models(documents, folder):
    """The same of custom resources, by the types of their models: tsc also finds fields that are unknown."""
    folder = pathlib.Path(folder)
    lines, names = [], []
    for kind, module in MODELS.items():
        lines.append(f"import type {{ I{kind[1]} }} from '{module}';")
    for number, document in enumerate(d for d in documents if kind_of(d) in MODELS):
        names.append(name_of(document))
        # In one line, so that an error's line names the document.
        lines.append(f"export const d{number}: I{document['kind']} = {json.dumps(document)};")
    source = folder / "manifests.ts"
    source.write_text("\n".join(lines) + "\n")
    options = {"noEmit": True, "strict": True, "skipLibCheck": True, "module": "esnext", "moduleResolution": "bundler",
               "lib": ["es2022"], "types": []}
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": [source.name]}))
    done = subprocess.run(["node", "node_modules/typescript/bin/tsc", "--pretty", "false"], cwd=folder, capture_output=True,
                          text=True)
    for line in done.stdout.splitlines():
        if line.startswith(source.name):
            number = int(line.partition("(")[2].partition(",")[0]) - len(MODELS) - 1
            yield f"{names[number] if number >= 0 else 'models'}: {line.partition(': ')[2]}"
    if done.returncode and source.name not in done.stdout:
        yield f"tsc: {done.stdout}{done.stderr}"


class Definitions:
    """Custom resource definitions, as `kubectl get crd -o yaml` prints them or as files of their projects."""

    def __init__(self, path):
        self.schemas = {}
        path = pathlib.Path(path)
        for file in sorted(path.rglob("*.y*ml")) if path.is_dir() else [path]:
            for document in yaml.safe_load_all(file.read_text()):
                for definition in (document or {}).get("items", [document]):
                    if definition and definition.get("kind") == "CustomResourceDefinition":
                        self.add(definition["spec"])

    def add(self, spec):
        for version in spec["versions"]:
            kind = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            self.schemas[kind] = version["schema"]["openAPIV3Schema"]

    def faults(self, documents):
        for document in documents:
            if schema := self.schemas.get(kind_of(document)):
                for fault in self.compare(schema, document, ""):
                    yield f"{name_of(document)}: {fault}"

    def compare(self, schema, value, where):
        import jsonschema

        plain = {key: part for key, part in schema.items() if not key.startswith("x-kubernetes-")}
        if not where:
            for error in jsonschema.Draft202012Validator(plain).iter_errors(value):
                yield f"{'.'.join(map(str, error.path))}: {error.message}"
        # A server drops what it does not know.
        if isinstance(value, dict) and "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            for key, part in value.items():
                if key in schema["properties"]:
                    yield from self.compare(schema["properties"][key], part, f"{where}.{key}")
                elif where or key not in ("apiVersion", "kind", "metadata"):
                    yield f"{where}.{key} is unknown"
        elif isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
            for key, part in value.items():
                yield from self.compare(schema["additionalProperties"], part, f"{where}.{key}")
        elif isinstance(value, list) and "items" in schema:
            for number, part in enumerate(value):
                yield from self.compare(schema["items"], part, f"{where}[{number}]")
