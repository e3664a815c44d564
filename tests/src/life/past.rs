//! Moves what was done within seconds to where it would have been.

use super::Life;
use crate::system::System;

/// Moves every delivery and attempt to where its event fired, as the tenant's schedule would have had it, and counts the
/// statistics anew.
pub(super) async fn move_back(system: &System) {
    for statement in [
        "UPDATE events SET received_at = occurred_at + interval '40 milliseconds'",
        "UPDATE deliveries AS d SET created_at = e.received_at FROM events AS e WHERE e.id = d.event_id",
        "UPDATE attempts AS a SET duration_us = CASE WHEN a.outcome = 'timeout' THEN a.duration_us \
             ELSE 14000 + (hashtext(a.delivery_id::text || a.attempt) & 65535) END, \
             started_at = d.created_at + interval '60 milliseconds' \
                 + (ARRAY[0, 60, 300, 900])[a.attempt] * interval '1 second', \
             signed_at = d.created_at + interval '60 milliseconds' \
                 + (ARRAY[0, 60, 300, 900])[a.attempt] * interval '1 second' \
         FROM deliveries AS d WHERE d.id = a.delivery_id",
        "UPDATE deliveries AS d SET first_failed_at = a.started_at FROM attempts AS a \
         WHERE a.delivery_id = d.id AND a.attempt = 1 AND d.first_failed_at IS NOT NULL",
        "DELETE FROM webhook_stats",
        "INSERT INTO webhook_stats (webhook_id, hour, outcome, bucket, attempts, dropped) \
         SELECT d.webhook_id, date_trunc('hour', a.started_at), a.outcome, \
                length(ltrim((a.duration_us / 1000)::int::bit(15)::text, '0')), count(*), \
                count(*) FILTER (WHERE d.state = 'dropped' AND a.attempt = d.attempts) \
         FROM attempts AS a JOIN deliveries AS d ON d.id = a.delivery_id GROUP BY 1, 2, 3, 4",
        "UPDATE webhook_health AS h SET failing_since = f.since, last_failure_at = f.last FROM ( \
             SELECT d.webhook_id, min(a.started_at) AS since, max(a.started_at) AS last \
             FROM attempts AS a JOIN deliveries AS d ON d.id = a.delivery_id WHERE a.outcome <> 'success' GROUP BY 1 \
         ) AS f WHERE f.webhook_id = h.webhook_id AND h.failing_since IS NOT NULL",
        "UPDATE webhook_health AS h SET last_success_at = s.last FROM ( \
             SELECT d.webhook_id, max(a.started_at) AS last \
             FROM attempts AS a JOIN deliveries AS d ON d.id = a.delivery_id WHERE a.outcome = 'success' GROUP BY 1 \
         ) AS s WHERE s.webhook_id = h.webhook_id",
    ] {
        system.sql(statement).await;
    }
}

/// As if all webhooks had been there for a month.
pub(super) async fn look_back(life: &Life, system: &System) {
    let days = "generate_series(date_trunc('hour', now()) - interval '29 days', \
                date_trunc('hour', now()) - interval '25 hours', '1 hour')";
    // By day there is more than by night, and little on weekends.
    let rate = "(1.2 - cos(extract(hour FROM h) / 3.82)) * CASE WHEN extract(isodow FROM h) > 5 THEN 0.2 ELSE 1 END";
    for (webhook, outcome, bucket, share, dropped, when) in [
        (&life.healthy, "success", 6, "13", "0", "true"),
        (&life.healthy, "status", 6, "2", "0", "extract(day FROM h)::int % 9 = 0"),
        (&life.failing, "success", 6, "7", "0", "true"),
        (&life.failing, "connect", 2, "5", "1", "extract(day FROM h)::int % 13 = 0"),
        (&life.hanging, "success", 9, "3", "0", "h < now() - interval '3 days'"),
        (&life.hanging, "timeout", 11, "4", "1", "h >= now() - interval '3 days'"),
        (&life.paused, "success", 5, "4", "0", "true"),
        (&life.fixed, "success", 6, "6", "0", "true"),
    ] {
        let columns = "webhook_id, hour, outcome, bucket, attempts, dropped";
        let rows = format!(
            "SELECT '{webhook}', h, '{outcome}', {bucket}, ceil({share} * {rate})::int, {dropped} FROM {days} AS h WHERE {when}"
        );
        system.sql(&format!("INSERT INTO webhook_stats ({columns}) {rows}")).await;
    }
    let hanging = format!(
        "UPDATE webhook_health SET failing_since = now() - interval '3 days', last_success_at = now() - interval '3 days' \
         WHERE webhook_id = '{}'",
        life.hanging
    );
    for statement in [
        &*hanging,
        "UPDATE webhooks SET created_at = now() - interval '47 days' - name_age, updated_at = now() - interval '11 hours' \
         FROM (SELECT id AS aged, length(name) * interval '1 day' AS name_age FROM webhooks) AS ages WHERE aged = id",
        "UPDATE history AS h SET created_at = CASE WHEN h.action = 'created' THEN w.created_at \
             WHEN h.details->'is_active' IS NOT NULL THEN now() - interval '11 hours' ELSE now() - interval '12 days' END \
         FROM webhooks AS w WHERE w.id = h.webhook_id",
        "UPDATE notices AS n SET created_at = CASE n.notice_type WHEN 'webhook.created' THEN w.created_at \
             WHEN 'webhook.changed' THEN now() - interval '12 days' WHEN 'webhook.paused' THEN now() - interval '11 hours' \
             WHEN 'webhook.recovered' THEN now() - interval '2 hours' \
             ELSE coalesce(h.failing_since, now() - interval '9 hours') + interval '16 minutes' END \
         FROM webhooks AS w LEFT JOIN webhook_health AS h ON h.webhook_id = w.id WHERE w.id = n.webhook_id",
    ] {
        system.sql(statement).await;
    }
}
