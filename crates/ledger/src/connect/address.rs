//! Where the database is, and how it is reached: libpq's connection strings. tokio-postgres reads them, but for TLS.

use std::{borrow::Cow, path::PathBuf, str::FromStr, time::Duration};

use percent_encoding::percent_decode_str;
use tls::{ClientFiles, FileError, IdentityFiles, Role, is_this_machine};
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

use crate::error::{LedgerError, TlsOptionError};

/// How to reach the database.
#[derive(Clone)]
pub struct LedgerConfig {
    /// `postgres://user:password@host:port/database`, or libpq's words `key=value`.
    pub url: String,
    /// The file that holds the password, in place of the connection string. It is read for each connection.
    pub password_file: Option<PathBuf>,
    /// The files of TLS, in place of the connection string's. With any of them, connections are encrypted. They are
    /// read for each connection.
    pub tls: ClientFiles,
    /// The most connections at a time.
    pub max_connections: usize,
    /// The name of this process in `pg_stat_activity`.
    pub application_name: &'static str,
    /// The time for which a call may hold a connection, from its first statement to its last. [`crate::CALL_TIMEOUT`] unless a
    /// client waits.
    pub call_timeout: Duration,
}

/// A connection string, read.
#[derive(Clone)]
pub(crate) struct Address {
    /// All settings except the files of TLS and the password's file.
    pub(crate) settings: Config,
    /// The files of TLS, when it is to be used.
    pub(crate) tls: Option<ClientFiles>,
    password_file: Option<PathBuf>,
}

/// The options that tokio-postgres does not know, or not as libpq does.
#[derive(Default)]
struct TlsOptions {
    mode: Option<String>,
    authorities: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl Address {
    /// Reads the connection string of a configuration, and each file once, to see that it can be used.
    pub(crate) fn of(config: &LedgerConfig) -> Result<Self, LedgerError> {
        let parsed = Self::parse(&config.url, &config.tls)?;
        let address = Self { password_file: config.password_file.clone(), ..parsed };
        match &address.password_file {
            Some(_) if address.settings.get_password().is_some() => Err(LedgerError::TwoPasswords),
            _ => address.with_password().map(|_| address).map_err(LedgerError::PasswordFile),
        }
    }

    /// The settings of the next connection. Reads the password's file, so a password that was changed needs no restart.
    pub(crate) fn with_password(&self) -> Result<Config, FileError> {
        let mut settings = self.settings.clone();
        if let Some(file) = &self.password_file {
            settings.password(tls::password(file)?);
        }
        Ok(settings)
    }

    /// Reads a connection string: a URL, or words `key=value`. `given` are the files of TLS that it does not name.
    /// Reads the files once, to see that they can be used.
    pub(crate) fn parse(text: &str, given: &ClientFiles) -> Result<Self, LedgerError> {
        let (rest, options) = TlsOptions::split(text);
        let mut settings = Config::from_str(&rest).map_err(LedgerError::Url)?;
        let tls = options.files(given)?;
        let sockets = settings.get_hosts().iter().filter(|host| matches!(host, Host::Unix(_))).count();
        let tls = match (tls, sockets) {
            (None, _) => None,
            (Some(_), sockets) if sockets > 0 && sockets == settings.get_hosts().len() => None,
            (Some(_), 1..) => return Err(TlsOptionError::Sockets.into()),
            (Some(_), 0) if settings.get_hosts().is_empty() && !settings.get_hostaddrs().is_empty() => {
                return Err(TlsOptionError::NoName.into());
            }
            (Some(files), 0) => {
                let failed = |error| match given.is_empty() {
                    true => TlsOptionError::File(error).into(),
                    false => LedgerError::TlsFile(error),
                };
                files.read().map_err(failed)?;
                Some(files)
            }
        };
        settings.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        Ok(Self { settings, tls, password_file: None })
    }

    /// The hosts other than this machine that are reached without TLS.
    pub(crate) fn in_the_clear(&self) -> Vec<String> {
        if self.tls.is_some() {
            return Vec::new();
        }
        let (hosts, addresses) = (self.settings.get_hosts(), self.settings.get_hostaddrs());
        let all =
            (0..hosts.len().max(addresses.len())).filter_map(|place| match (hosts.get(place), addresses.get(place)) {
                (_, Some(address)) => Some(address.to_string()),
                (Some(Host::Tcp(name)), None) => Some(name.clone()),
                _ => None,
            });
        all.filter(|host| !is_this_machine(host)).collect()
    }
}

impl TlsOptions {
    /// Takes the options of TLS out of a connection string. What is malformed stays, for tokio-postgres to refuse.
    fn split(text: &str) -> (String, Self) {
        if ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            Self::split_url(text)
        } else {
            Self::split_words(text)
        }
    }

    fn split_url(text: &str) -> (String, Self) {
        let mut options = Self::default();
        // A password may hold question marks.
        let host = text.find('@').map_or(0, |at| at + 1);
        let Some(query) = text[host..].find('?').map(|at| host + at) else { return (text.to_owned(), options) };
        let rest: Vec<_> = text[query + 1..]
            .split('&')
            .filter(|parameter| {
                let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                let (key, value) = (percent_decode_str(key).decode_utf8_lossy(), percent_decode_str(value));
                !options.take(&key, value.decode_utf8_lossy())
            })
            .collect();
        let mark = if rest.is_empty() { "" } else { "?" };
        (format!("{}{mark}{}", &text[..query], rest.join("&")), options)
    }

    fn split_words(text: &str) -> (String, Self) {
        let (mut options, mut rest, mut left) = (Self::default(), String::new(), text);
        while let Some((key, value, after)) = word(left) {
            if !options.take(key, value.into()) {
                rest += &left[..left.len() - after.len()];
            }
            left = after;
        }
        (rest + left, options)
    }

    /// Whether the option is one of TLS, and so was taken.
    fn take(&mut self, key: &str, value: Cow<'_, str>) -> bool {
        let place = match key {
            "sslmode" => &mut self.mode,
            "sslrootcert" => &mut self.authorities,
            "sslcert" => &mut self.certificate,
            "sslkey" => &mut self.key,
            _ => return false,
        };
        *place = Some(value.into_owned()).filter(|value| !value.is_empty());
        true
    }

    /// The files to use, or `None` when the connection is not to be encrypted.
    fn files(self, given: &ClientFiles) -> Result<Option<ClientFiles>, LedgerError> {
        let off = match self.mode.as_deref() {
            None | Some("require" | "verify-full") => None,
            Some("disable") => Some("sslmode=disable"),
            Some("prefer") => Some("sslmode=prefer"),
            Some("verify-ca") => return Err(TlsOptionError::Mode("=verify-ca, which verifies no name,").into()),
            Some("allow") => return Err(TlsOptionError::Mode("=allow").into()),
            Some(_) => return Err(TlsOptionError::Mode(" of that name").into()),
        };
        let files = [("sslrootcert", &self.authorities), ("sslcert", &self.certificate), ("sslkey", &self.key)];
        let file = files.into_iter().find_map(|(option, value)| value.as_ref().map(|_| option));
        if let Some(setting) = first(given) {
            return match off.or(file) {
                Some(option) => Err(LedgerError::TlsTwice { setting, option }),
                None => Ok(Some(given.clone())),
            };
        }
        match (self.mode.as_deref(), file) {
            (Some("disable"), _) => return Ok(None),
            // libpq's default, which works without TLS. A server that has TLS by chance need not have a certificate
            // that verifies.
            (None | Some("prefer"), None) => return Ok(None),
            (None | Some("prefer"), Some(option)) => return Err(TlsOptionError::WithoutMode(option).into()),
            _ => {}
        }
        let identity = match (self.certificate, self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(IdentityFiles { certificate: certificate.into(), key: key.into() }),
            _ => return Err(TlsOptionError::Half.into()),
        };
        // The word for the public authorities: Mozilla's, here.
        let authorities = self.authorities.filter(|file| file != "system").map(PathBuf::from);
        Ok(Some(ClientFiles { authorities, identity }))
    }
}

/// The role of the first file that is given.
fn first(files: &ClientFiles) -> Option<Role> {
    let authorities = files.authorities.as_ref().map(|_| Role::Authorities);
    authorities.or(files.identity.as_ref().map(|_| Role::Certificate))
}

/// The first `key=value` of a text, where the value may be in quotes, and what follows.
fn word(text: &str) -> Option<(&str, String, &str)> {
    let (key, rest) = text.split_once('=')?;
    let rest = rest.trim_start();
    let (is_quoted, rest) = rest.strip_prefix('\'').map_or((false, rest), |rest| (true, rest));
    let (mut value, mut chars) = (String::new(), rest.char_indices());
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => value.extend(chars.next().map(|(_, char)| char)),
            '\'' if is_quoted => return Some((key.trim(), value, &rest[at + 1..])),
            _ if !is_quoted && char.is_whitespace() => return Some((key.trim(), value, &rest[at..])),
            _ => value.push(char),
        }
    }
    (!is_quoted).then_some((key.trim(), value, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, LedgerError> {
        Address::parse(text, &ClientFiles::default())
    }

    fn refusal(text: &str) -> String {
        parse(text).err().unwrap_or_else(|| panic!("{text} is refused")).to_string()
    }

    #[test]
    fn options_of_tls_are_taken_out_of_both_forms() {
        for (text, rest) in [
            ("postgres://u:p?sslmode=x@h1:1,h2:2/d?sslmode=verify-full", "postgres://u:p?sslmode=x@h1:1,h2:2/d"),
            ("postgresql://h/d?a=%26&sslmode=verify%2Dfull&b=c", "postgresql://h/d?a=%26&b=c"),
            ("host=h sslmode = 'verify-full' user='it\\'s sslmode=x'", "host=h user='it\\'s sslmode=x'"),
            ("sslmode=verify-full password=a\\ b", " password=a\\ b"),
        ] {
            let (left, options) = TlsOptions::split(text);
            assert_eq!((left.as_str(), options.mode.as_deref()), (rest, Some("verify-full")), "{text}");
        }
        let (left, options) = TlsOptions::split("postgres://h/d?sslrootcert=/a%20b.pem&sslcert=c&sslkey=k");
        assert_eq!(left, "postgres://h/d");
        assert_eq!(options.authorities.as_deref(), Some("/a b.pem"));
        assert_eq!((options.certificate.as_deref(), options.key.as_deref()), (Some("c"), Some("k")));
    }

    #[test]
    fn only_modes_that_verify_the_server_encrypt() {
        for mode in ["?sslmode=require", "?sslmode=verify-full", "?sslmode=verify-full&sslrootcert=system"] {
            let address = parse(&format!("postgres://db.internal/d{mode}")).unwrap();
            assert_eq!(address.tls, Some(ClientFiles::default()), "{mode}");
            assert_eq!(address.settings.get_ssl_mode(), SslMode::Require);
            assert!(address.in_the_clear().is_empty());
        }
        for mode in ["", "?sslmode=prefer", "?sslmode=disable", "?sslmode=disable&sslrootcert=/none.pem"] {
            let address = parse(&format!("postgres://db.internal/d{mode}")).unwrap();
            assert_eq!(address.tls, None, "{mode}");
            assert_eq!(address.settings.get_ssl_mode(), SslMode::Disable);
            assert_eq!(address.in_the_clear(), ["db.internal"]);
        }
        for (mode, words) in [
            ("sslmode=allow", "sslmode=allow is not possible: write disable, or verify-full"),
            ("sslmode=verify-ca", "sslmode=verify-ca, which verifies no name, is not possible"),
            ("sslmode=correct-horse", "sslmode of that name is not possible"),
            ("sslrootcert=/none.pem", "sslrootcert is given without sslmode=verify-full"),
            ("sslmode=prefer&sslcert=c&sslkey=k", "sslcert is given without sslmode=verify-full"),
            ("sslmode=require&sslcert=c", "sslcert and sslkey are needed together"),
            ("sslmode=require&sslrootcert=/none.pem", "sslrootcert: /none.pem cannot be read: No such file"),
        ] {
            let said = refusal(&format!("postgres://db.internal/d?{mode}"));
            assert!(said.contains(words) && !said.contains("horse"), "{said}");
        }
    }

    #[test]
    fn sockets_and_loopback_need_no_tls() {
        for text in [
            "host=/run/postgresql",
            "host=/run/postgresql sslmode=require",
            "postgres://%2Frun%2Fpostgresql/d?sslmode=verify-full",
            "postgres://127.0.0.1,localhost,[::1]/d",
            "host=db.internal hostaddr=127.0.0.1",
        ] {
            let address = parse(text).unwrap();
            assert!(address.in_the_clear().is_empty() && address.tls.is_none(), "{text}");
        }
        let mixed = parse("postgres://127.0.0.1,db1.internal:1,10.0.0.1/d").unwrap();
        assert_eq!(mixed.in_the_clear(), ["db1.internal", "10.0.0.1"]);
        assert!(refusal("host=/run/postgresql,db.internal sslmode=require").contains("cannot be in one list"));
        assert!(refusal("hostaddr=10.0.0.1 sslmode=require").contains("hostaddr needs host"));
        let named = parse("host=db.internal hostaddr=10.0.0.1 sslmode=require").unwrap();
        assert_eq!(named.tls, Some(ClientFiles::default()));
    }

    #[test]
    fn files_of_the_settings_encrypt_and_come_without_those_of_the_connection_string() {
        let given = ClientFiles { authorities: Some("/none.pem".into()), identity: None };
        let with = |options: &str| Address::parse(&format!("postgres://db.internal/d{options}"), &given);
        for options in ["", "?sslmode=require", "?sslmode=verify-full", "?sslrootcert="] {
            let error = with(options).err().unwrap();
            assert!(matches!(&error, LedgerError::TlsFile(file) if file.role == Role::Authorities), "{error:?}");
        }
        for (options, expected) in [
            ("?sslmode=disable", "sslmode=disable"),
            ("?sslmode=prefer", "sslmode=prefer"),
            ("?sslmode=verify-full&sslrootcert=system", "sslrootcert"),
            ("?sslcert=c&sslkey=k", "sslcert"),
            ("?sslkey=k", "sslkey"),
        ] {
            let error = with(options).err().unwrap();
            let is_expected = |option: &str, setting| option == expected && matches!(setting, Role::Authorities);
            assert!(
                matches!(&error, LedgerError::TlsTwice { setting, option } if is_expected(option, *setting)),
                "{error:?}"
            );
        }
        assert!(matches!(with("?sslmode=allow").err().unwrap(), LedgerError::TlsOption(_)));
        let sockets = Address::parse("host=/run/postgresql", &given).unwrap();
        assert!(sockets.tls.is_none() && sockets.in_the_clear().is_empty());
    }
}
