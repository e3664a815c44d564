//! What a receiver finds when it verifies a delivery.

use hyper::HeaderMap;
use signing::{
    MAX_TOLERANCE_SECONDS, SIGNATURE_HEADER, STANDARD_ID_HEADER, STANDARD_SIGNATURE_HEADER, STANDARD_TIMESTAMP_HEADER,
    SigningSecret, StandardHeaders, VerifyError, verify, verify_standard,
};

/// The verdict on one signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is of this body and this secret, and its time is near.
    Good,
    /// There is no secret to verify it with.
    Unverified,
    /// Only for Standard Webhooks: the operator has switched it off.
    NotSent,
    /// A receiver must refuse the delivery.
    Bad(String),
}

/// The verdicts on both signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdicts {
    /// On `X-Service-Signature`.
    pub(super) service: Verdict,
    /// On `webhook-signature`.
    pub(super) standard: Verdict,
}

impl Verdicts {
    /// Verifies a request at a time in Unix seconds.
    pub(super) fn on(headers: &HeaderMap, body: &[u8], secret: Option<&SigningSecret>, now: i64) -> Self {
        Self { service: service(headers, body, secret, now), standard: standard(headers, body, secret, now) }
    }

    /// Whether a receiver may process the delivery.
    pub(super) fn are_good(&self) -> bool {
        self.service == Verdict::Good && matches!(self.standard, Verdict::Good | Verdict::NotSent)
    }
}

fn service(headers: &HeaderMap, body: &[u8], secret: Option<&SigningSecret>, now: i64) -> Verdict {
    match (only(headers, SIGNATURE_HEADER), secret) {
        (Err(fault), _) => Verdict::Bad(fault),
        (Ok(_), None) => Verdict::Unverified,
        (Ok(header), Some(secret)) => verdict(verify(secret, header, body, now, MAX_TOLERANCE_SECONDS)),
    }
}

fn standard(headers: &HeaderMap, body: &[u8], secret: Option<&SigningSecret>, now: i64) -> Verdict {
    let names = [STANDARD_ID_HEADER, STANDARD_TIMESTAMP_HEADER, STANDARD_SIGNATURE_HEADER];
    if names.iter().all(|name| !headers.contains_key(*name)) {
        return Verdict::NotSent;
    }
    let [id, timestamp, signature] = names.map(|name| only(headers, name));
    match (id, timestamp, signature, secret) {
        (Err(fault), ..) | (_, Err(fault), ..) | (_, _, Err(fault), _) => Verdict::Bad(fault),
        (.., None) => Verdict::Unverified,
        (Ok(id), Ok(timestamp), Ok(signature), Some(secret)) => {
            let headers = StandardHeaders { id, timestamp, signature };
            verdict(verify_standard(secret, headers, body, now, MAX_TOLERANCE_SECONDS))
        }
    }
}

fn verdict(verified: Result<(), VerifyError>) -> Verdict {
    match verified {
        Ok(()) => Verdict::Good,
        Err(VerifyError::Mismatch) => {
            Verdict::Bad("the signature does not match: the secret is another one, or the body was changed".to_owned())
        }
        Err(error) => Verdict::Bad(error.to_string()),
    }
}

fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h str, String> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map_err(|_| format!("{name} is not text")),
        (None, _) => Err(format!("{name} is missing")),
        (Some(_), Some(_)) => Err(format!("{name} is there more than once")),
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use signing::{sign, sign_standard};

    use super::*;

    const NOW: i64 = 1_772_357_400;
    const BODY: &[u8] = b"{}";

    fn secret() -> SigningSecret {
        SigningSecret::from(format!("whsec_{}", "0123456789abcdef".repeat(4)))
    }

    fn signed() -> HeaderMap {
        let standard = sign_standard(&secret(), "id", NOW, BODY).unwrap();
        let values = [
            ("x-service-signature", sign(&secret(), BODY, NOW)),
            ("webhook-id", "id".to_owned()),
            ("webhook-timestamp", NOW.to_string()),
            ("webhook-signature", standard),
        ];
        values.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn without(name: &str) -> HeaderMap {
        let mut headers = signed();
        headers.remove(name).unwrap();
        headers
    }

    fn bad(fault: &str) -> Verdict {
        Verdict::Bad(fault.to_owned())
    }

    #[test]
    fn both_signatures_have_a_verdict_of_their_own() {
        let both = Verdicts { service: Verdict::Good, standard: Verdict::Good };
        assert_eq!(Verdicts::on(&signed(), BODY, Some(&secret()), NOW), both);
        assert!(both.are_good());

        let off = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let mut headers = signed();
        for name in off {
            headers.remove(name);
        }
        let verdicts = Verdicts::on(&headers, BODY, Some(&secret()), NOW);
        assert_eq!(verdicts, Verdicts { standard: Verdict::NotSent, ..both.clone() });
        assert!(verdicts.are_good());

        let without_service = Verdicts::on(&without("x-service-signature"), BODY, Some(&secret()), NOW);
        assert_eq!(without_service, Verdicts { service: bad("X-Service-Signature is missing"), ..both.clone() });
        assert!(!without_service.are_good());
        let half = Verdicts::on(&without("webhook-id"), BODY, Some(&secret()), NOW);
        assert_eq!(half, Verdicts { standard: bad("webhook-id is missing"), ..both });
        assert!(!half.are_good());
    }

    #[test]
    fn a_fault_is_named() {
        let on = |headers: &HeaderMap, body: &[u8], now| Verdicts::on(headers, body, Some(&secret()), now);
        let changed = on(&signed(), b"{ }", NOW);
        let fault = bad("the signature does not match: the secret is another one, or the body was changed");
        assert_eq!(changed, Verdicts { service: fault.clone(), standard: fault });
        let old = on(&signed(), BODY, NOW + 301);
        assert!(matches!(&old.service, Verdict::Bad(fault) if fault.contains("301 s")), "{old:?}");
        assert!(matches!(&old.standard, Verdict::Bad(fault) if fault.contains("301 s")), "{old:?}");
        let mut twice = signed();
        twice.append("x-service-signature", HeaderValue::from_static("t=1,v1=00"));
        assert_eq!(on(&twice, BODY, NOW).service, bad("X-Service-Signature is there more than once"));
    }

    #[test]
    fn without_a_secret_nothing_is_said_to_be_good() {
        let verdicts = Verdicts::on(&signed(), BODY, None, NOW);
        assert_eq!(verdicts, Verdicts { service: Verdict::Unverified, standard: Verdict::Unverified });
        assert!(!verdicts.are_good());
    }
}
