"""Checks the chart, its examples and the Containerfile. Prints what is wrong and what was not checked; exits 1 if
anything is wrong."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import yaml

from . import examples, project, queries, written
from .helm import Helm, Refused, merged
from .rules import RULES, Manifests, prometheus_triggers
from .shapes import MODELS, Definitions, builtin, is_builtin, kind_of, models


class Check:
    def __init__(self, chart=project.CHART, quiet=False):
        self.chart, self.quiet, self.wrong, self.missing = chart, quiet, [], []
        self.helms = [Helm(project.FOLDER / name, chart) for name in ("helm-4", "helm-3") if (project.FOLDER / name).exists()]
        self.begun = time.monotonic()

    def note(self, what, faults):
        faults = list(dict.fromkeys(faults))
        self.wrong += [f"{what}: {fault}" for fault in faults]
        if not self.quiet:
            print(f"  {'wrong' if faults else 'ok':5}  {what}")
            for fault in faults:
                print(f"         {fault}")

    def lacks(self, what):
        self.missing.append(what)

    def files(self):
        return sorted((self.chart / "ci").glob("*.yaml"))

    def values(self, path):
        return merged(yaml.safe_load((self.chart / "values.yaml").read_text()), yaml.safe_load(path.read_text()))

    def rendered(self):
        """(name, values, manifests) of every set of values, by the newest Helm. A refusal is a fault."""
        for path in self.files():
            try:
                yield path.stem, self.values(path), self.helms[0].template(path)
            except Refused as error:
                self.note(f"{path.stem}: template", [str(error)])

    def rules(self, documents, values):
        manifests = Manifests(documents, values)
        return [f"{rule.__name__.replace('_', ' ')}: {fault}" for rule in RULES for fault in rule(manifests)]

    def rules_only(self):
        for name, values, documents in self.rendered():
            self.note(name, self.rules(documents, values))

    def manifests(self):
        everything = []
        for name, values, documents in self.rendered():
            everything += documents
            faults = [*builtin(documents), *self.rules(documents, values)]
            self.note(f"{name}: {len(documents)} manifests, schemas of Kubernetes, {len(RULES)} rules", faults)
            self.promtool(name, documents)
        return everything

    def promtool(self, name, documents):
        """Prometheus' own check of the alerts, and of what KEDA asks."""
        groups = [group for d in documents if d["kind"] == "PrometheusRule" for group in d["spec"]["groups"]]
        asked = [{"record": f"asked:{number}", "expr": trigger["metadata"]["query"]}
                 for number, (_, trigger) in enumerate(prometheus_triggers(Manifests(documents, {})))]
        if asked:
            groups.append({"name": "keda", "rules": asked})
        if not groups:
            return
        if not shutil.which("promtool"):
            self.lacks("promtool: alerts and queries")
            return
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            yaml.safe_dump({"groups": groups}, file)
            file.flush()
            done = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True)
        self.note(f"{name}: {sum(len(group['rules']) for group in groups)} rules and queries, promtool",
                  [done.stdout + done.stderr] if done.returncode else [])
        triggers = {trigger["name"]: trigger for _, trigger in prometheus_triggers(Manifests(documents, {}))}
        if triggers and not done.returncode:
            self.note(f"{name}: KEDA's queries on made-up metrics", queries.faults(triggers))

    def both_helms(self):
        """An older Helm makes the same, and neither finds anything to say."""
        for path in self.files():
            faults = []
            for helm in self.helms:
                try:
                    helm.lint(path)
                except Refused as error:
                    faults.append(f"{helm.program.name} lint: {error}")
            try:
                made = [sorted(map(str, helm.template(path))) for helm in self.helms]
                if any(other != made[0] for other in made):
                    faults.append("Helm 3 and Helm 4 make different manifests")
                if "webhookctl session create" not in self.helms[0].notes(path):
                    faults.append("the notes lack the first delivery")
            except Refused as error:
                faults.append(str(error))
            self.note(f"{path.stem}: lint and notes, {', '.join(helm.program.name for helm in self.helms)}", faults)

    def refusals(self):
        cases = yaml.safe_load((pathlib.Path(__file__).parent / "wrong_values.yaml").read_text())
        for helm in self.helms:
            faults = []
            for case in cases:
                base = self.chart / "ci" / f"{case.get('base', 'minimal')}.yaml"
                try:
                    helm.template_with(base, case["values"])
                    faults.append(f"{case['values']} is taken")
                except Refused as error:
                    if not says(str(error), case["says"]):
                        faults.append(f"{case['values']}: the message lacks {case['says']!r}: {error}")
            self.note(f"{len(cases)} wrong values, {helm.program.name}", faults)
        self.note("settings that are secrets", self.sensitive_settings())

    def sensitive_settings(self):
        checks = (self.chart / "templates/_checks.tpl").read_text()
        for setting in project.settings().values():
            if setting.sensitive and f'"{setting.section}.{setting.key}"' not in checks:
                yield f"{setting.section}.{setting.key} is secret, and settings would take it: refuse it in _checks.tpl"

    def custom_resources(self, everything):
        if not (project.FOLDER / "npm/node_modules/typescript").exists():
            self.lacks("the models of npm: custom resources")
        else:
            custom = [document for document in everything + examples.documents() if kind_of(document) in MODELS]
            self.note(f"{len(custom)} custom resources, types of their models", models(custom, project.FOLDER / "npm"))
        strange = {kind_of(d) for d in everything if not is_builtin(d) and kind_of(d) not in MODELS}
        self.note("no other kinds", [f"{kind} has no schema here" for kind in strange])
        if path := os.environ.get("CRDS"):
            definitions = Definitions(path)
            known = [d for d in everything + examples.documents() if kind_of(d) in definitions.schemas]
            kinds = sorted({kind_of(document)[1] for document in known})
            self.note(f"{len(known)} custom resources ({', '.join(kinds)}), definitions of {path}", definitions.faults(known))

    def examples(self):
        self.note("examples", examples.faults(self.helms[0]))
        if not os.environ.get("CRDS"):
            self.lacks(f"definitions of {', '.join(examples.CUSTOM)} (CRDS=FILE): the examples' fields")

    def yamllint(self):
        paths = [project.CHART / "values.yaml", project.CHART / "Chart.yaml", project.CHART / "ci", project.EXAMPLES]
        rules = "{extends: relaxed, rules: {line-length: {max: 220}, key-duplicates: enable}}"
        done = subprocess.run([project.FOLDER / "venv/bin/yamllint", "--strict", "-d", rules, *paths], capture_output=True, text=True)
        self.note("yamllint", [done.stdout] if done.returncode else [])

    def hadolint(self):
        if not project.CONTAINERFILE.exists():
            self.lacks("deploy/Containerfile, which is not there")
            return
        done = subprocess.run([project.FOLDER / "venv/bin/hadolint", project.CONTAINERFILE], capture_output=True, text=True)
        self.note("hadolint of deploy/Containerfile", [done.stdout + done.stderr] if done.returncode else [])

    def all(self):
        self.note("README and schema of the chart", written.faults())
        everything = self.manifests()
        self.custom_resources(everything)
        self.both_helms()
        self.refusals()
        self.examples()
        self.yamllint()
        self.hadolint()


def says(message, words):
    """Whether the message has the words. A place in the values is written by Helm 3 and Helm 4 in their own ways."""
    if words.startswith("/"):
        return words in message or words[1:].replace("/", ".") in message
    if match := re.fullmatch(r"'(\w+)' not allowed", words):
        return words in message or f"Additional property {match[1]} is not allowed" in message
    return words in message or words.replace('"', '\\"') in message


def main():
    if sys.argv[1:] == ["--write"]:
        written.write()
        print("deploy-check: wrote the chart's README.md and values.schema.json")
        return 0
    if not any((project.FOLDER / name).exists() for name in ("helm-4", "helm-3")):
        print("deploy-check: Helm is missing: the chart is not checked")
        return 0
    if sys.argv[1:2] == ["--prove"]:
        from .prove import prove

        return prove(Check, " ".join(sys.argv[2:]))
    check = Check()
    check.all()
    for what in dict.fromkeys(check.missing):
        print(f"deploy-check: not checked, for want of {what}")
    print(f"deploy-check: {len(check.wrong) or 'nothing'} wrong, {time.monotonic() - check.begun:.0f} s")
    return 1 if check.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
