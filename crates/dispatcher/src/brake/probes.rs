//! Probes: tries to reach any receiver without an attempt.

use std::{collections::HashMap, future::ready};

use domain::{Destinations, TenantId, WebhookUrl};
use egress::Egress;
use futures_util::{StreamExt, stream::FuturesUnordered};
use ledger::{Ledger, LedgerError};

use crate::metrics::Brakes;

/// The tenants of one probe, a few receivers of each, and how many probes fail before the brake is set.
const TENANTS: u16 = 50;
const PROBES: usize = 5;

/// Makes probes.
pub(crate) struct Probes {
    pub(crate) ledger: Ledger,
    pub(crate) egress: Egress,
    pub(crate) destinations: Destinations,
    pub(crate) canary: Option<WebhookUrl>,
    pub(crate) shown: Brakes,
}

impl Probes {
    /// Returns whether any of several probes, each of further tenants, reaches a receiver. `None`: the ledger does not
    /// answer.
    pub(super) async fn probe_often(&self, next: &mut Option<TenantId>) -> Option<bool> {
        let mut is_round = next.is_none();
        for _ in 0..PROBES {
            if self.probe(next).await? {
                return Some(true);
            }
            if next.is_none() && std::mem::replace(&mut is_round, true) {
                break;
            }
        }
        Some(false)
    }

    /// Returns whether any receiver of the tenants after `next` can be reached, or the canary. Where nobody can be
    /// asked, nothing is wrong. `None`: the ledger does not answer.
    pub(super) async fn probe(&self, next: &mut Option<TenantId>) -> Option<bool> {
        let candidates = self.candidates(next).await;
        let urls = candidates
            .inspect_err(|error| tracing::debug!(error = error as &dyn std::error::Error, "no receivers to probe"))
            .ok()?;
        let reached = self.reach_any_of(&urls).await;
        self.shown.probed(reached);
        Some(reached)
    }

    /// The receivers of the next tenants. After the last tenant comes the first.
    async fn candidates(&self, next: &mut Option<TenantId>) -> Result<Vec<String>, LedgerError> {
        let (mut urls, mut last) = self.ledger.receivers_to_probe(*next, TENANTS).await?;
        if urls.is_empty() && next.is_some() {
            (urls, last) = self.ledger.receivers_to_probe(None, TENANTS).await?;
        }
        *next = last;
        Ok(urls)
    }

    async fn reach_any_of(&self, urls: &[String]) -> bool {
        let of_hosts: HashMap<&str, &String> = urls.iter().map(|url| (host(url), url)).collect();
        let parsed = of_hosts.values().filter_map(|url| WebhookUrl::parse(url, usize::MAX, &self.destinations).ok());
        let receivers: Vec<WebhookUrl> = parsed.chain(self.canary.clone()).collect();
        let mut probes: FuturesUnordered<_> = receivers.iter().map(|url| self.egress.reaches(url)).collect();
        probes.is_empty() || probes.by_ref().any(ready).await
    }
}

/// The host and port of a URL.
pub(super) fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_port_and_nothing_behind_it() {
        for url in [
            "https://a.example:8443/x",
            "https://a.example:8443?x",
            "https://a.example:8443#x",
            "https://a.example:8443",
        ] {
            assert_eq!(host(url), "a.example:8443");
        }
    }
}
