//! The slots for which the process has descriptors.

use service_kit::{Settings, settings::Dispatcher};

use crate::lane::attempts_at_a_time;

/// The descriptors besides those of attempts and pooled connections: of database, broker, name servers and files.
const OTHER_DESCRIPTORS: u64 = 1000;

/// Lowers the slots to what the limit of open descriptors leaves beside the pool, and the pool to half of the limit at
/// most. An eighth of the limit stays for attempts. Returns the warning about it.
pub(crate) fn fit(settings: &mut Settings, limit: u64) -> Option<String> {
    let Settings { dispatcher, egress, .. } = settings;
    let (attempts, pooled) = (attempts_at_a_time(dispatcher), egress.max_idle);
    let pool = u64::try_from(pooled).unwrap_or(u64::MAX);
    let needed = attempts.saturating_add(pool).saturating_add(OTHER_DESCRIPTORS);
    if needed <= limit {
        return None;
    }
    let left = limit.saturating_sub(pool).saturating_sub(OTHER_DESCRIPTORS).max(limit / 8);
    let lowered = |slots: u16| {
        let part = u64::from(slots) * left.min(attempts) / attempts;
        u16::try_from(part).unwrap_or(slots).max(1)
    };
    let before = (dispatcher.max_in_flight, dispatcher.slow_in_flight);
    let Dispatcher { max_in_flight, slow_in_flight, .. } = dispatcher;
    (*max_in_flight, *slow_in_flight) = (lowered(before.0), lowered(before.1));
    egress.max_idle = pooled.min(usize::try_from(limit / 2).unwrap_or(usize::MAX));
    Some(format!(
        "this process may open {limit} descriptors, fewer than the {needed} for {attempts} attempts at a time, {pooled} \
         pooled connections and {OTHER_DESCRIPTORS} others. Instead of dispatcher.max_in_flight {} it uses {max_in_flight}, instead \
         of dispatcher.slow_in_flight {} it uses {slow_in_flight}, instead of egress.max_idle {pooled} it uses {}. Raise the hard \
         limit (LimitNOFILE, --ulimit nofile, ulimit -Hn) to {needed}, or lower these settings",
        before.0, before.1, egress.max_idle,
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn settings(main: u16, slow: u16, pool: usize) -> Settings {
        let of = |key: &str, value: String| (format!("WEBHOOKS__{key}"), value);
        let variables = HashMap::from([
            of("DATABASE__URL", "postgres://a@b/c".to_owned()),
            of("BROKER__URL", "amqp://a".to_owned()),
            of("DISPATCHER__MAX_IN_FLIGHT", main.to_string()),
            of("DISPATCHER__SLOW_IN_FLIGHT", slow.to_string()),
            of("EGRESS__MAX_IDLE", pool.to_string()),
        ]);
        Settings::from_sources(None, variables).unwrap()
    }

    #[test]
    fn slots_are_lowered_to_what_the_descriptors_allow_and_the_warning_says_so() {
        // 1024 and 256 slots, and 512 long places.
        for ((main, slow, pool), limit, expected) in [
            ((1024, 256, 1024), u64::MAX, None),
            ((1024, 256, 1024), 3816, None),
            ((1024, 256, 1024), 3815, Some((1023, 255, 1024))),
            ((1024, 256, 1024), 2500, Some((272, 68, 1024))),
            ((1024, 256, 1024), 1024, Some((73, 18, 512))),
            ((1024, 256, 1024), 64, Some((4, 1, 32))),
            ((1024, 256, 1024), 0, Some((1, 1, 0))),
            ((1, 1, 0), 500, Some((1, 1, 0))),
            ((16, 8, 100_000), 65_536, Some((16, 8, 32_768))),
            ((65_535, 65_535, 1024), 65_536, Some((25_404, 25_404, 1024))),
        ] {
            let mut settings = settings(main, slow, pool);
            let warning = fit(&mut settings, limit);
            let used =
                (settings.dispatcher.max_in_flight, settings.dispatcher.slow_in_flight, settings.egress.max_idle);
            assert_eq!(used, expected.unwrap_or((main, slow, pool)), "{limit}");
            assert_eq!(warning.is_some(), expected.is_some(), "{limit}");
            if let Some(warning) = warning {
                let said = format!("max_in_flight {main} it uses {},", used.0);
                assert!(warning.contains(&said) && warning.contains(&format!("open {limit} ")), "{warning}");
            }
            if limit > 8000 {
                assert!(attempts_at_a_time(&settings.dispatcher) + used.2 as u64 + OTHER_DESCRIPTORS <= limit);
            }
        }
    }
}
