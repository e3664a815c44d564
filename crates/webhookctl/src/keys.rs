//! `webhookctl keys`.

use anyhow::ensure;
use clap::Subcommand;
use ledger::{KeyUse, Ledger, SecretKeys, Unopened};
use service_kit::{Settings, connections};

use crate::{connect, output, server_error};

/// Commands about keys.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Shows how many secrets each key seals (signing secrets, and headers of webhooks), whether it is configured or not.
    List,
    /// Reseals with the first key what other configured keys seal, so that they can be retired. Services can stay up.
    Reseal,
}

pub(crate) async fn run(settings: &Settings, command: Command) -> anyhow::Result<()> {
    let (ledger, keys) = (connect::ledger(settings)?, connections::secret_keys(settings)?);
    match command {
        Command::List => {
            let used = server_error::database(ledger.keys_used(&keys).await)?;
            output::line(table(&keys, &used).trim_end())
        }
        Command::Reseal => reseal(&ledger, &keys).await,
    }
}

/// Reseals with the first key what other configured keys seal. If some cannot be resealed, lists them and fails.
async fn reseal(ledger: &Ledger, keys: &SecretKeys) -> anyhow::Result<()> {
    let first = keys.ids().next().unwrap_or_default();
    let used = server_error::database(ledger.keys_used(keys).await)?;
    ensure!(
        !used.iter().any(|used| used.key_id == first && used.is_wrong()),
        "the key {first:?} does not open what it is said to seal: its digits here are not those of the services (compare the \
         fingerprint of `webhookctl keys list` with that in their logs). Nothing was resealed"
    );
    let (mut resealed, mut unopened, mut reached) = (0, Vec::new(), None);
    loop {
        let step = server_error::database(ledger.secrets_reseal(keys, reached).await)?;
        resealed += step.resealed;
        unopened.extend(step.unopened);
        reached = step.cursor;
        if reached.is_none() {
            break;
        }
    }
    output::line(format_args!("resealed {resealed} secret(s) with the key {first:?}"))?;
    for Unopened { webhook, field, error } in &unopened {
        output::line(format_args!("webhook {webhook}, {}: {error}", field.words()))?;
    }
    let used = server_error::database(ledger.keys_used(keys).await)?;
    output::line(table(keys, &used).trim_end())?;
    let rest: u64 = used.iter().filter(|used| used.key_id != first).map(|used| used.secrets).sum();
    ensure!(rest == 0, "{rest} secret(s) are not sealed by the key {first:?}");
    Ok(())
}

fn table(keys: &SecretKeys, used: &[KeyUse]) -> String {
    let none = KeyUse { key_id: String::new(), secrets: 0, of_deleted: 0, unopened: 0 };
    let configured = keys.fingerprints().enumerate().map(|(index, (id, fingerprint))| {
        let used = used.iter().find(|used| used.key_id == id).unwrap_or(&none);
        let KeyUse { secrets, of_deleted, unopened, .. } = used;
        let what = match (index, *secrets) {
            _ if used.is_wrong() => "WRONG DIGITS: its secrets do not open",
            _ if *unopened > 0 => "SOME OF ITS SECRETS DO NOT OPEN",
            (0, _) => "seals new secrets",
            (_, 0) => "seals nothing",
            _ => "opens only: `webhookctl keys reseal`",
        };
        (id, fingerprint, *secrets, *of_deleted, what)
    });
    let unknown = used.iter().filter(|used| keys.ids().all(|id| id != used.key_id));
    let unknown = unknown.map(|used| {
        (used.key_id.as_str(), "", used.secrets, used.of_deleted, "NOT CONFIGURED: its secrets do not open")
    });
    let rows: Vec<_> = configured.chain(unknown).collect();
    let width = rows.iter().map(|(id, ..)| id.chars().count()).max().unwrap_or_default().max("KEY".len());
    let mut text = format!("{:width$}  FINGERPRINT  SECRETS  OF DELETED WEBHOOKS  STATE\n", "KEY");
    for (id, fingerprint, secrets, of_deleted, what) in rows {
        text += &format!("{id:width$}  {fingerprint:11}  {secrets:>7}  {of_deleted:>19}  {what}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_shows_every_key_that_is_configured_or_in_use() {
        let digits = "0".repeat(64);
        let other = "1".repeat(64);
        let keys = format!("new-2026:{digits},old:{digits},bad:{other},spare:{digits}").parse().unwrap();
        let used = |key_id: &str, secrets, of_deleted, unopened| KeyUse {
            key_id: key_id.to_owned(),
            secrets,
            of_deleted,
            unopened,
        };
        let all = [used("lost", 2, 2, 0), used("bad", 5, 0, 5), used("new-2026", 3, 0, 0), used("old", 1200, 1, 1)];
        let text = table(&keys, &all);
        let expected = "\
KEY       FINGERPRINT  SECRETS  OF DELETED WEBHOOKS  STATE
new-2026  66687aad           3                    0  seals new secrets
old       66687aad        1200                    1  SOME OF ITS SECRETS DO NOT OPEN
bad       02d449a3           5                    0  WRONG DIGITS: its secrets do not open
spare     66687aad           0                    0  seals nothing
lost                         2                    2  NOT CONFIGURED: its secrets do not open
";
        assert_eq!(text, expected);
    }
}
