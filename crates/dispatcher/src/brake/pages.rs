//! Pages of receivers that are asked concurrently, without an attempt, whether any can be reached.

use std::{collections::HashMap, time::Duration};

use domain::{AddressPolicy, TenantId, WebhookUrl, error_chain};
use egress::Egress;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use ledger::Ledger;
use tokio::time::timeout;

use crate::brake::metrics::Brakes;

/// The maximum of receivers in a page, and the time in which one of them has to be reached.
const MAX_PAGE_RECEIVERS: u16 = 200;
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time in which the canary has to be reached. A page comes after it.
const CANARY_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks pages of receivers.
pub(crate) struct Pages {
    pub(crate) ledger: Ledger,
    pub(crate) egress: Egress,
    pub(crate) address_policy: AddressPolicy,
    pub(crate) canary: Option<WebhookUrl>,
    pub(crate) shown: Brakes,
}

/// The way through the receivers of all tenants, page by page.
#[derive(Default)]
pub(super) struct Round {
    /// The last tenant of the page before.
    after: Option<TenantId>,
    /// True if a page of this round had somebody to ask.
    has_asked: bool,
}

/// The result of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageResult {
    /// A receiver, or the canary, can be reached.
    Reached,
    /// None of the receivers can be.
    Unreached,
    /// There was nobody to ask. That proves nothing.
    Nobody,
    /// In a whole round, there was nobody to ask.
    NobodyAtAll,
}

impl Pages {
    /// Asks the canary, and the next page if the canary is not reached: receivers are asked as seldom as possible. The
    /// ledger's silence proves as little as an empty page.
    pub(super) async fn ask(&self, round: &mut Round) -> PageResult {
        if let Some(canary) = &self.canary
            && self.reach(canary, CANARY_TIMEOUT).await == Some(true)
        {
            self.shown.count_probe(true);
            return PageResult::Reached;
        }
        let urls = match self.ledger.receivers_to_probe(round.after, MAX_PAGE_RECEIVERS).await {
            Ok((urls, last)) => {
                round.has_asked &= round.after.is_some();
                round.after = last;
                urls
            }
            Err(error) => {
                tracing::debug!(error = error_chain(&error), "no receivers to ask");
                return PageResult::Nobody;
            }
        };
        let is_reached = self.reach_any_of(&urls).await;
        round.has_asked |= is_reached.is_some();
        match is_reached {
            Some(is_reached) => {
                self.shown.count_probe(is_reached);
                if is_reached { PageResult::Reached } else { PageResult::Unreached }
            }
            None if round.after.is_none() && !round.has_asked => PageResult::NobodyAtAll,
            None => PageResult::Nobody,
        }
    }

    /// Returns whether a receiver is reached. `None`: there is none to ask, or only internal ones are reached.
    async fn reach_any_of(&self, urls: &[String]) -> Option<bool> {
        let of_hosts: HashMap<&str, &String> = urls.iter().map(|url| (host(url), url)).collect();
        let parsed = of_hosts.values().filter_map(|url| WebhookUrl::parse(url, usize::MAX, &self.address_policy).ok());
        let reach = |url: WebhookUrl| async move {
            // An internal receiver proves nothing.
            self.reach(&url, PAGE_TIMEOUT).await.filter(|_| !self.egress.is_internal(url.as_str()))
        };
        let mut asking: FuturesUnordered<_> = parsed.map(reach).map(FutureExt::boxed).collect();
        let mut any = None;
        while let Some(is_reached) = asking.next().await {
            any = any.max(is_reached);
            if any == Some(true) {
                break;
            }
        }
        any
    }

    /// Returns whether a URL is reached in time. `None`: it was not asked.
    async fn reach(&self, url: &WebhookUrl, limit: Duration) -> Option<bool> {
        timeout(limit, self.egress.reaches(url)).await.unwrap_or(Some(false))
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
