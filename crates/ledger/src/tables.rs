//! The tables that diesel's query builder is used with.

diesel::table! {
    webhooks (id) {
        id -> Uuid,
        tenant_id -> Uuid,
        name -> Text,
        url -> Text,
        events -> Array<Text>,
        is_active -> Bool,
        secret_key_id -> Text,
        secret_sealed -> Binary,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        last_success_at -> Nullable<Timestamptz>,
        failure_count -> Integer,
    }
}

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
