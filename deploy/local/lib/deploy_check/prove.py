"""Breaks a copy of the chart in one way at a time. A check that does not see it is a defect."""

import pathlib
import shutil
import tempfile

import yaml

from . import examples, project, written
from .rules import RULES
from .shapes import MODELS, builtin, kind_of, models


def found(check, part, folder):
    """What one part of the checks says about the copy."""
    if part == "written":
        return list(written.faults())
    if part == "examples":
        return list(examples.faults(check.helms[0]))
    if part == "refusals":
        check.refusals()
        return check.wrong
    faults = []
    for _, _, documents in check.rendered():
        if part == "builtin":
            faults += list(builtin(documents))
        elif part == "promtool":
            check.promtool("", documents)
        elif part == "models":
            faults += list(models([d for d in documents if kind_of(d) in MODELS], folder / "npm"))
    if part == "rules":
        check.rules_only()
    return faults + check.wrong


def prove(check, words):
    unseen, said = 0, set()
    changes = yaml.safe_load((pathlib.Path(__file__).parent / "changes.yaml").read_text())
    changes = [change for change in changes if words in str(change)]
    for change in changes:
        with tempfile.TemporaryDirectory() as temporary:
            copy = pathlib.Path(temporary) / "helm"
            shutil.copytree(project.ROOT / "deploy/helm", copy)
            file = copy / change["file"]
            before = file.read_text()
            if change["old"] not in before:
                print(f"  old    {change['file']} has no {change['old']!r}")
                unseen += 1
                continue
            file.write_text(before.replace(change["old"], str(change["new"])))
            project.CHART, project.EXAMPLES = copy / "webhooks", copy / "examples"
            faults = found(check(project.CHART, quiet=True), change.get("part", "rules"), project.FOLDER)
        seen = [fault for fault in faults if change["says"] in fault]
        if not seen:
            unseen += 1
        said |= {fault.split(": ")[1] for fault in seen if fault.count(": ") > 1}
        print(f"  {'seen' if seen else 'UNSEEN':6} {change['file']}: {change['old'].strip()[:60]!r} -> {str(change['new']).strip()[:40]!r}")
        for fault in seen[:1] or faults[:3]:
            print(f"         {fault[:180]}")
    never = {rule.__name__ for rule in RULES} - {name.replace(" ", "_") for name in said} if not words else set()
    for name in sorted(never):
        print(f"  UNSEEN no change makes the rule {name} speak")
    unseen += len(never)
    print(f"deploy-check: {len(changes)} changes, {unseen or 'none'} unseen")
    return 1 if unseen else 0
