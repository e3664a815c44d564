//! The outcome class of an attempt (specification, sections 3, 7 and 8).

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::all::all;

/// Why an attempt succeeded or failed. A closed set, fit for a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, EnumString, IntoStaticStr, VariantArray)]
#[cfg_attr(feature = "diesel", derive(diesel::expression::AsExpression, diesel::deserialize::FromSqlRow))]
#[cfg_attr(feature = "diesel", diesel(sql_type = diesel::sql_types::Text))]
#[strum(serialize_all = "snake_case")]
pub enum OutcomeClass {
    /// The receiver answered 2xx.
    Success,
    /// The receiver answered with another status. A redirect is a failure too: it is not followed.
    Status,
    /// The deadline passed before the receiver's status had arrived.
    Timeout,
    /// No TCP connection: refused, reset or unreachable.
    Connect,
    /// The host name did not resolve to an address that the egress policy allows.
    Dns,
    /// The TLS handshake failed: certificate, name, version or cipher.
    Tls,
    /// The egress policy refuses the host, the port or the address in the URL.
    RefusedAddress,
    /// The peer did not speak HTTP/1.1, or broke off in the middle of an answer.
    Protocol,
}

impl OutcomeClass {
    /// Every class, for metrics and checks.
    pub const ALL: [Self; 8] = all(Self::VARIANTS);

    /// The name that the ledger, the metrics and the API use.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The class of an HTTP status: any 2xx is a success (specification, section 4.4).
    pub const fn of_status(status: u16) -> Self {
        if status >= 200 && status <= 299 { Self::Success } else { Self::Status }
    }

    /// Whether the delivery succeeded.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_from_200_to_299_is_a_success_and_any_other_is_none() {
        for (status, class) in [
            (0, OutcomeClass::Status),
            (100, OutcomeClass::Status),
            (199, OutcomeClass::Status),
            (200, OutcomeClass::Success),
            (204, OutcomeClass::Success),
            (299, OutcomeClass::Success),
            (300, OutcomeClass::Status),
            (404, OutcomeClass::Status),
            (500, OutcomeClass::Status),
            (u16::MAX, OutcomeClass::Status),
        ] {
            assert_eq!(OutcomeClass::of_status(status), class, "{status}");
        }
    }

    #[test]
    fn each_class_has_a_fixed_name_and_only_success_is_one() {
        let names = OutcomeClass::ALL.map(OutcomeClass::as_str);
        assert_eq!(
            names,
            ["success", "status", "timeout", "connect", "dns", "tls", "refused_address", "protocol"],
            "the ledger and the metrics have these names"
        );
        let good: Vec<_> = OutcomeClass::ALL.into_iter().filter(|class| class.is_success()).collect();
        assert_eq!(good, [OutcomeClass::Success]);
    }
}
