"""Runs Helm."""

import os
import subprocess
import tempfile

import yaml

from . import project

NAMESPACE = "hooks"
RELEASE = "webhooks"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def merged(base, changes):
    """As Helm merges values: an empty one removes."""
    result = dict(base)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


class Refused(Exception):
    """Helm said no."""


class Helm:
    def __init__(self, program, chart=project.CHART):
        self.program, self.chart = program, chart

    def run(self, *arguments):
        with tempfile.TemporaryDirectory() as home:
            environment = {**os.environ, "HELM_CACHE_HOME": home, "HELM_CONFIG_HOME": home, "HELM_DATA_HOME": home}
            done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, env=environment)
        if done.returncode:
            # A link of the chart is no news.
            lines = [line for line in done.stderr.splitlines() if "symbolic link" not in line]
            raise Refused("\n".join(lines) + done.stdout)
        return done.stdout

    def lint(self, values):
        self.run("lint", "--strict", "--quiet", self.chart, "--namespace", NAMESPACE, "-f", values)

    def template(self, *values, release=RELEASE):
        """The manifests for files of values, hooks and tests included."""
        files = [word for path in values for word in ("-f", path)]
        text = self.run("template", release, self.chart, "--namespace", NAMESPACE, *files)
        return [document for document in yaml.load_all(text, LOADER) if document]

    def template_with(self, base, changes):
        """The same for a file and changes to it."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(changes, file)
            file.flush()
            return self.template(base, file.name)

    def notes(self, values):
        """What an installation prints."""
        text = self.run("install", RELEASE, self.chart, "--namespace", NAMESPACE, "--dry-run=client", "-f", values)
        return text.partition("NOTES:")[2]
