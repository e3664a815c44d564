//! Area `settings`.

use super::super::{finding::Finding, observed::SettingsSeen};

const REMEDY: &str = "set or correct it where the services get their settings: no service that needs it starts. If they do \
                      have it, run the doctor with the same settings";

pub(super) fn check(seen: &SettingsSeen) -> Vec<Finding> {
    let mut findings: Vec<_> =
        seen.faults.iter().map(|fault| Finding::error("settings.usable", fault, REMEDY)).collect();
    if findings.is_empty() {
        findings.push(Finding::ok("settings.usable", "every service can start with the settings that were read here"));
    }
    if !seen.exempt.is_empty() {
        let exempt = seen.exempt.join(", ");
        findings.push(Finding::note(
            "settings.exempt_networks",
            format!("receivers may be in {exempt} (egress.allowed_networks): right for development"),
        ));
    }
    if !seen.denied.is_empty() {
        let denied = seen.denied.join(", ");
        let text = format!("no delivery goes to {denied} (egress.denied_networks)");
        findings.push(Finding::ok("settings.denied_networks", text));
    }
    findings
}
