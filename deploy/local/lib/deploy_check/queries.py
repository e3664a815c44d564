"""What KEDA asks Prometheus, asked of made-up metrics by promtool."""

import pathlib
import subprocess
import tempfile

import yaml

from . import project
from .helm import NAMESPACE

IN = f'namespace="{NAMESPACE}"'
# All first attempts begin 30 s to 60 s after their delivery was accepted. The classes are those of the dispatcher.
LATE = {
    f'webhooks_first_attempt_delay_seconds_bucket{{{IN},pod="a",lane="main",le="{bound}"}}': "0x40" if bound <= 30 else "0+10x40"
    for bound in project.delay_bounds()
} | {f'webhooks_first_attempt_delay_seconds_bucket{{{IN},pod="a",lane="main",le="+Inf"}}': "0+10x40"}
LATE_IN_THE_SLOW_LANE = {series.replace('lane="main"', 'lane="slow"'): values for series, values in LATE.items()}
NOBODY_WAITS = {f'webhooks_lane_ready_jobs{{{IN},pod="{pod}",lane="main"}}': "0x40" for pod in "ab"}
JOBS_WAIT = {series: "7x40" for series in NOBODY_WAITS}
OTHERS_WAIT = {series.replace(IN, 'namespace="other"'): "7x40" for series in NOBODY_WAITS} | {
    f'webhooks_lane_ready_jobs{{{IN},pod="a",lane="slow"}}': "900x40"}
BUSY = {
    f'webhooks_attempts_in_flight{{{IN},pod="a",lane="main"}}': "500x40",
    f'webhooks_attempts_in_flight{{{IN},pod="a",lane="bulk"}}': "250x40",
    f'webhooks_attempts_in_flight{{{IN},pod="a",lane="slow"}}': "256x40",
    f'webhooks_slots{{{IN},pod="a",lane="main"}}': "1000x40",
    f'webhooks_slots{{{IN},pod="a",lane="slow"}}': "256x40",
}
# (what, trigger, series, expression around the query, whether it has a value)
CASES = [
    ("late attempts while jobs wait", "delay", LATE | JOBS_WAIT, "({}) > bool 30", True),
    ("late attempts while nobody waits", "delay", LATE | NOBODY_WAITS | OTHERS_WAIT, "({}) == bool 0", True),
    ("late attempts in the slow lane alone", "delay", LATE_IN_THE_SLOW_LANE | JOBS_WAIT, "({}) == bool 0", True),
    ("no attempt yet", "delay", NOBODY_WAITS, "({}) == bool 0", True),
    ("lost metrics", "delay", OTHERS_WAIT, "{}", False),
    ("slots", "slots", BUSY, "({}) == bool 0.75", True),
    ("lost metrics of slots", "slots", LATE, "{}", False),
]
# With the slow lane's own metrics there, those of the main one are not lost.
assert all('lane="main"' not in series or IN not in series for series in OTHERS_WAIT)


def faults(triggers):
    """What the queries of these triggers, by name, answer wrongly."""
    for what, name, series, expression, has_value in CASES:
        query = triggers[name]["metadata"]["query"]
        samples = [{"labels": "{}", "value": 1}] if has_value else []
        test = {
            "interval": "15s",
            "input_series": [{"series": key, "values": values} for key, values in series.items()],
            "promql_expr_test": [{"expr": expression.format(query), "eval_time": "5m", "exp_samples": samples}],
        }
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "test.yml"
            file.write_text(yaml.safe_dump({"evaluation_interval": "15s", "tests": [test]}))
            done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
        if done.returncode:
            yield f"{what}: {done.stdout}{done.stderr}"
