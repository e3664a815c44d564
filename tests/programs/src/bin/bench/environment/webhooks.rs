//! Registers many webhooks at once, without the API's limits.

use std::fmt::Write;

use domain::WebhookId;
use ledger::SecretKeys;
use signing::SigningSecret;
use uuid::Uuid;

use super::Environment;

/// The rows of one statement.
const MAX_BATCH_ROWS: usize = 1000;

impl Environment<'_> {
    /// Registers `of_each` webhooks for `quote.closed` for each of so many new tenants, with secrets of their own.
    /// Returns the tenants.
    pub(crate) async fn webhooks(&self, tenants: usize, of_each: usize, path: &str) -> Vec<Uuid> {
        self.webhooks_at(tenants, of_each, &self.bench.sink.url(path)).await
    }

    /// The same for receivers at a URL.
    pub(crate) async fn webhooks_at(&self, tenants: usize, of_each: usize, url: &str) -> Vec<Uuid> {
        let keys: SecretKeys = self.system.variables["WEBHOOKS__SECRETS__KEYS"].parse().expect("the keys are good");
        let tenants: Vec<Uuid> = (0..tenants).map(|_| Uuid::new_v4()).collect();
        let owners: Vec<Uuid> = tenants.iter().flat_map(|tenant| std::iter::repeat_n(*tenant, of_each)).collect();
        for owners in owners.chunks(MAX_BATCH_ROWS) {
            let mut statement =
                "INSERT INTO webhooks (id, tenant_id, name, url, events, secret_key_id, secret_sealed) VALUES "
                    .to_owned();
            let mut comma = "";
            for tenant in owners {
                let id = WebhookId::from(Uuid::now_v7());
                let secret = SigningSecret::generate().expect("there is randomness");
                let sealed = keys.seal(id, &secret).expect("it can be sealed");
                let (key, hex) = (sealed.key_id, hex::encode(sealed.sealed));
                write!(
                    statement,
                    "{comma}('{id}', '{tenant}', 'Measured', '{url}', '{{quote.closed}}', '{key}', '\\x{hex}')"
                )
                .expect("a string can be written");
                comma = ", ";
            }
            self.sql(&statement).await;
        }
        self.sql("VACUUM (ANALYZE) webhooks").await;
        tenants
    }
}
