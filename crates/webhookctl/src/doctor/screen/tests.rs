use super::*;

fn plain(findings: &[Finding]) -> String {
    anstream::adapter::strip_str(&text(findings)).to_string()
}

#[test]
fn a_screen_says_all_is_well() {
    let findings = [Finding::ok("database.version", "PostgreSQL 15.14"), Finding::note("database.disk", "12 MB")];
    let expected = "\
database    ✓  PostgreSQL 15.14
            ·  12 MB

Nothing is wrong.
";
    assert_eq!(plain(&findings), expected);
}

#[test]
fn faults_are_listed_again_with_their_fix_the_worst_first() {
    let findings = [
        Finding::ok("keys.open", "3 secrets"),
        Finding::warning("queues.rejected", "1 event was rejected", "webhookctl rejected list"),
        Finding::error("queues.dead", format!("{}end", "many words ".repeat(12)), "webhookctl dead list"),
    ];
    let expected = "\
keys        ✓  3 secrets
queues      !  1 event was rejected
            ✗  many words many words many words many words many words many words
               many words many words many words many words many words many words
               end

1 error, 1 warning:

  ✗ queues.dead: many words many words many words many words many words many
    words many words many words many words many words many words many words end
    → webhookctl dead list

  ! queues.rejected: 1 event was rejected
    → webhookctl rejected list
";
    assert_eq!(plain(&findings), expected);
    assert_eq!(document(&findings)["level"], "error");
    assert_eq!(document(&findings)["checks"][1]["remedy"], "webhookctl rejected list");
    assert_eq!(document(&findings)["checks"][0]["remedy"], Value::Null);
}
