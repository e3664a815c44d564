//! Requests to the operator's own application. Its URL is a setting, so no address is refused.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, Uri,
    header::{ACCEPT, HeaderName, HeaderValue, USER_AGENT},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use tokio::time::timeout;

use crate::{EgressError, builder::builder, causes, host::server_name, limited::Explained};

/// What an operator decides about requests to an application.
#[derive(Clone, Debug)]
pub struct InternalConfig {
    /// The URL: absolute, `http` or `https`.
    pub url: String,
    /// The deadline of one request: resolving, connecting, TLS, sending and the whole answer.
    pub timeout: Duration,
    /// The contents of a PEM bundle of certificate authorities to trust besides Mozilla's.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// The value of the header `User-Agent`.
    pub user_agent: String,
    /// The longest answer's body, in bytes.
    pub answer_limit: usize,
}

/// Asks one URL of an application that the operator or the developer trusts. Every request has a new connection, so none
/// is stale.
#[derive(Clone, Debug)]
pub struct Internal {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    timeout: Duration,
    user_agent: HeaderValue,
    answer_limit: usize,
}

/// A whole answer, whatever its status. Redirects are not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, at most [`InternalConfig::answer_limit`] long.
    pub body: Bytes,
}

/// Why there is no answer. It holds nothing of what was sent, and each text has at most 300 characters.
#[derive(Debug, thiserror::Error)]
pub enum InternalError {
    /// The header's value holds characters that a header cannot carry.
    #[error("the header {0} cannot be written")]
    Unwritable(&'static str),
    /// The deadline passed.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// There is no connection, or it broke before the answer's head.
    #[error("the request failed")]
    Request(#[source] Explained),
    /// The answer broke off.
    #[error("the answer broke off")]
    Body(#[source] Explained),
    /// The answer is larger than so many bytes.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

impl Internal {
    /// Sets up the client. Connects nothing.
    ///
    /// # Errors
    /// [`EgressError`] if the URL, the extra authorities, the user agent or TLS cannot be set up.
    pub fn new(config: InternalConfig) -> Result<Self, EgressError> {
        let InternalConfig { url, timeout, extra_ca_pem, user_agent, answer_limit } = config;
        let uri = Uri::try_from(url).map_err(|_| EgressError::Url)?;
        if uri.host().is_none() || !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(EgressError::Url);
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Several addresses share this time, so that one that does not answer leaves time for the next.
        tcp.set_connect_timeout(Some(timeout));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls::client_config(extra_ca_pem.as_deref())?)
            .https_or_http()
            .with_server_name_resolver(server_name)
            .enable_http1()
            .wrap_connector(tcp);
        let client = builder().pool_max_idle_per_host(0).build(https);
        let user_agent = HeaderValue::try_from(user_agent).map_err(|_| EgressError::UserAgent)?;
        Ok(Self { client, uri, timeout, user_agent, answer_limit })
    }

    /// Sends a GET that accepts JSON, with one more header, whose `name` is in lower case. Dropping the future closes
    /// its connection.
    ///
    /// # Errors
    /// [`InternalError`], at most the configured timeout later.
    pub async fn get(&self, name: &'static str, value: &str) -> Result<InternalAnswer, InternalError> {
        let mut value = HeaderValue::from_str(value).map_err(|_| InternalError::Unwritable(name))?;
        value.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(HeaderName::from_static(name), value);
        self.send(Method::GET, headers, Bytes::new()).await
    }

    /// Sends a request with these headers, besides `Host` and `Content-Length`, and with our `User-Agent` if they have
    /// none. Dropping the future closes its connection.
    ///
    /// # Errors
    /// [`InternalError`], at most the configured timeout later.
    pub async fn send(&self, method: Method, headers: HeaderMap, body: Bytes) -> Result<InternalAnswer, InternalError> {
        let exchange = self.exchange(method, headers, body);
        timeout(self.timeout, exchange).await.map_err(|_| InternalError::Timeout(self.timeout))?
    }

    async fn exchange(&self, method: Method, headers: HeaderMap, body: Bytes) -> Result<InternalAnswer, InternalError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        request.headers_mut().entry(USER_AGENT).or_insert_with(|| self.user_agent.clone());
        let response =
            self.client.request(request).await.map_err(|error| InternalError::Request(Explained::of(&error)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, self.answer_limit).collect().await;
        let body = body.map_err(|error| match causes::find::<LengthLimitError>(error.as_ref()) {
            Some(_) => InternalError::TooLarge(self.answer_limit),
            None => InternalError::Body(Explained::of(error.as_ref())),
        })?;
        Ok(InternalAnswer { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() })
    }
}
