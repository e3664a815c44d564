//! The tables that diesel's query builder is used with.

diesel::table! {
    webhooks (id) {
        id -> Uuid,
        tenant_id -> Uuid,
        name -> Text,
        description -> Text,
        external_id -> Nullable<Text>,
        url -> Text,
        events -> Array<Text>,
        is_active -> Bool,
        secret_key_id -> Text,
        secret_sealed -> Binary,
        header_names -> Array<Text>,
        headers_key_id -> Nullable<Text>,
        headers_sealed -> Nullable<Binary>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        paused_at -> Nullable<Timestamptz>,
        deleted_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    webhook_health (webhook_id) {
        webhook_id -> Uuid,
        last_success_at -> Nullable<Timestamptz>,
        failure_count -> Integer,
        failing_since -> Nullable<Timestamptz>,
        last_failure_at -> Nullable<Timestamptz>,
        last_failure -> Nullable<Text>,
    }
}

diesel::joinable!(webhook_health -> webhooks (webhook_id));
diesel::allow_tables_to_appear_in_same_query!(webhooks, webhook_health, cancellations);

diesel::table! {
    admin_sessions (id_sha256) {
        id_sha256 -> Binary,
        tenant_id -> Uuid,
        user_id -> Text,
        role -> Text,
        created_at -> Timestamptz,
        expires_at -> Timestamptz,
    }
}

diesel::table! {
    api_keys (id) {
        id -> Uuid,
        tenant_id -> Uuid,
        name -> Text,
        key_sha256 -> Binary,
        created_by -> Text,
        created_at -> Timestamptz,
        expires_at -> Nullable<Timestamptz>,
        last_used_on -> Nullable<Date>,
    }
}

diesel::table! {
    deliveries (id) {
        id -> Uuid,
        webhook_id -> Uuid,
        event_id -> Uuid,
        event_type -> Text,
        is_test -> Bool,
        state -> Text,
        attempts -> SmallInt,
        run_base -> SmallInt,
        created_at -> Timestamptz,
        first_failed_at -> Nullable<Timestamptz>,
        next_attempt_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    attempts (delivery_id, attempt) {
        delivery_id -> Uuid,
        attempt -> SmallInt,
        url -> Text,
        signed_at -> Timestamptz,
        started_at -> Timestamptz,
        duration_us -> BigInt,
        outcome -> Text,
        status -> Nullable<SmallInt>,
        response_body -> Binary,
        error -> Nullable<Text>,
    }
}

diesel::table! {
    events (occurred_at, id, tenant_id, event_type) {
        occurred_at -> Timestamptz,
        id -> Uuid,
        tenant_id -> Uuid,
        event_type -> Text,
        body -> Binary,
        received_at -> Timestamptz,
        traceparent -> Nullable<Text>,
    }
}

diesel::table! {
    promised_jobs (delivery_id) {
        delivery_id -> Uuid,
        leased_until -> Timestamptz,
    }
}

diesel::table! {
    recoveries (id) {
        id -> Uuid,
        webhook_id -> Uuid,
        since -> Timestamptz,
        created_at -> Timestamptz,
        finished_at -> Nullable<Timestamptz>,
        resent -> Integer,
        cursor -> Uuid,
        leased_until -> Timestamptz,
        states -> Array<Text>,
        outcomes -> Array<Text>,
        event_types -> Array<Text>,
        until -> Nullable<Timestamptz>,
        is_stopped -> Bool,
    }
}

diesel::table! {
    cancellations (webhook_id) {
        webhook_id -> Uuid,
        cursor -> Uuid,
        leased_until -> Timestamptz,
        until -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    notices (id) {
        id -> Uuid,
        webhook_id -> Nullable<Uuid>,
        tenant_id -> Uuid,
        webhook_name -> Nullable<Text>,
        notice_type -> Text,
        details -> Json,
        created_at -> Timestamptz,
        leased_until -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    history (id) {
        id -> Uuid,
        tenant_id -> Uuid,
        webhook_id -> Uuid,
        user_id -> Text,
        action -> Text,
        details -> Json,
        created_at -> Timestamptz,
    }
}
