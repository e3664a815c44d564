//! Whether a webhook takes deliveries.

/// Whether a webhook takes deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookState {
    /// It takes them.
    Active,
    /// Its administrator paused it: jobs are held.
    Paused,
    /// It is deleted: deliveries are cancelled.
    Deleted,
}

impl WebhookState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Active, Self::Paused, Self::Deleted];
}
