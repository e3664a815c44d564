"""What is written from other files: the table of values in the chart's README, and the names of settings in its schema."""

import json
import re

import yaml

from . import project

BEGIN, END = "<!-- values: begin (written by deploy-check --write) -->", "<!-- values: end -->"


def path(name):
    return project.CHART / name


def values():
    return yaml.safe_load(path("values.yaml").read_text())


def rows():
    """(value, default, comment) of values.yaml: a map that holds named values is a heading, others are a row."""
    place, comment, found = [], "", []
    tree = values()
    lines = path("values.yaml").read_text().splitlines()
    for line in lines[lines.index("") :]:
        if note := re.match(r"\s*# ?(.*)", line):
            comment = f"{comment} {note[1]}".strip()
        elif entry := re.match(r"( *)([\w]+):(.*)", line):
            depth, rest = len(entry[1]) // 2, entry[3].strip()
            place = [*place[:depth], entry[2]]
            default = tree
            for key in place:
                default = default.get(key) if isinstance(default, dict) else None
            if " # " in f" {rest}":
                comment = f"{comment} {f' {rest}'.partition(' # ')[2]}".strip()
            found.append((".".join(place), default, comment, rest.partition("#")[0].strip() == ""))
            comment = ""
        elif not line.strip():
            comment = ""
    # What is below a list or a map of Kubernetes is its content, not a value of the chart.
    whole = ("settings", "settingsFrom", "resources", "podSecurityContext", "containerSecurityContext", "to", "metricsFrom")
    for name, default, comment, opens in found:
        parents = name.split(".")[:-1]
        if any(part in whole for part in parents):
            continue
        if opens and name.split(".")[-1] not in whole:
            if comment:
                yield name, None, comment
            continue
        yield name, default, comment


def table():
    lines = ["| value | default | what |", "|---|---|---|"]
    for name, default, comment in rows():
        shown = "" if default is None else f"`{json.dumps(default, ensure_ascii=False)}`"
        if default in ("", [], {}):
            shown = ""
        lines.append(f"| `{name}` | {shown.replace('|', chr(92) + '|')} | {comment.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def readme():
    text = path("README.md").read_text()
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def schema():
    """The hand-written schema, with the settings that there are."""
    text = json.loads(path("values.schema.json").read_text())
    sections, secrets = {}, {}
    for setting in project.settings().values():
        sections.setdefault(setting.section, {})[setting.key] = {"$ref": "#/definitions/setting"}
        secrets.setdefault(setting.section, {})[setting.key] = {"$ref": "#/definitions/secretKey"}

    def of(keys):
        closed = {name: {"type": "object", "additionalProperties": False, "properties": part} for name, part in keys.items()}
        return {"type": "object", "additionalProperties": False, "properties": closed}

    text["definitions"]["settings"], text["definitions"]["settingsFrom"] = of(sections), of(secrets)
    return json.dumps(text, indent=2) + "\n"


def write():
    path("README.md").write_text(readme())
    path("values.schema.json").write_text(schema())


def faults():
    if path("README.md").read_text() != readme():
        yield "README.md: its table is not that of values.yaml: run deploy/local/deploy-check --write"
    if path("values.schema.json").read_text() != schema():
        yield "values.schema.json: its settings are not those of defaults.toml: run deploy/local/deploy-check --write"
    for place in leaves(values(), json.loads(path("values.schema.json").read_text())):
        yield f"values.schema.json: {place} is open: a wrong name there would be taken"


def leaves(tree, schema, place=""):
    """Maps of values.yaml whose names the schema does not know."""
    free = ("Labels", "Annotations", "labels", "annotations", "nodeSelector", "affinity", "resources", "SecurityContext",
            "metadata", "authenticationRef")
    if isinstance(tree, dict) and not place.endswith(free) and not place.startswith((".settings", ".apiService.settings")):
        if schema.get("additionalProperties") is not False and not place.endswith(("settings", "settingsFrom")):
            yield place or "the root"
        for key, part in tree.items():
            below = schema.get("properties", {}).get(key)
            if below is None and not place.endswith(("settings", "settingsFrom")):
                yield f"{place}.{key}"
            elif below is not None:
                yield from leaves(part, below, f"{place}.{key}")
