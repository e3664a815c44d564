//! The client: one POST, one deadline, one answer.

use std::{sync::Arc, time::Duration};

use domain::{OutcomeClass, PostResult, WebhookUrl};
use hyper::{Request, Response, StatusCode, Uri, body::Incoming, header::HeaderValue};
use hyper_util::{
    client::legacy::{Client, connect::Connected},
    rt::TokioTimer,
};
use time::OffsetDateTime;
use tokio::time::{Instant, timeout, timeout_at};
use tower_service::Service;

use crate::{
    EgressConfig, EgressError, Post,
    allowed_tcp::AllowedTcp,
    body,
    builder::builder,
    charset,
    connection_counts::ConnectionCounts,
    connector::Connector,
    connects::Connects,
    exchange::{Exchange, ExchangeBody, Exchanges},
    failure::Failure,
    failure_messages,
    limited::limited,
    no_descriptor::NoDescriptor,
    request,
    resolver::Resolver,
};

/// The age at which a connection gets no further request. A connection that is used all the time would stay with an
/// address that the receiver's name no longer has.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(5 * 60);

/// Sends POSTs to receivers that nobody trusts. Clones share the connection pool and are cheap.
#[derive(Clone)]
pub struct Egress(Arc<Inner>);

struct Inner {
    timeout: Duration,
    user_agent: HeaderValue,
    notice: Option<String>,
    max_idle: usize,
    /// The age of a connection from which on a further request might begin after [`MAX_CONNECTION_AGE`].
    reused_for: Duration,
    counts: ConnectionCounts,
    connects: Connects,
    tcp: AllowedTcp,
    connector: Connector,
    pooled: Client<Connector, ExchangeBody>,
    /// A client without a pool: every request has a connection of its own.
    fresh: Client<Connector, ExchangeBody>,
}

impl Egress {
    /// Sets up the client. Connects nothing.
    ///
    /// # Errors
    /// [`EgressError`] if the extra authorities, the user agent, the resolver or TLS cannot be set up.
    pub fn new(config: EgressConfig) -> Result<Self, EgressError> {
        let timeout = config.timeout;
        let user_agent = HeaderValue::try_from(config.user_agent).map_err(|_| EgressError::UserAgent)?;
        let tls = tls::client_config(config.extra_ca_pem.as_deref())?;
        let resolver =
            Resolver::new(&config.name_servers, timeout).map_err(|error| EgressError::Resolver(Box::new(error)))?;
        let notice = resolver.notice();
        let tcp = AllowedTcp::new(config.address_policy, resolver, timeout);
        let idle_timeout = config.idle_timeout.min(MAX_CONNECTION_AGE / 2);
        let reused_for = MAX_CONNECTION_AGE.saturating_sub(timeout.saturating_add(idle_timeout));
        let counts = ConnectionCounts::default();
        let connector = Connector::new(tcp.clone(), tls, timeout, counts.clone());
        let pooled = client(connector.clone(), idle_timeout, config.max_idle_per_host);
        let fresh = client(connector.clone(), idle_timeout, 0);
        Ok(Self(Arc::new(Inner {
            timeout,
            user_agent,
            notice,
            max_idle: config.max_idle,
            reused_for,
            counts,
            connects: Connects::default(),
            tcp,
            connector,
            pooled,
            fresh,
        })))
    }

    /// A notice for the operator about how names are resolved, for the log.
    pub fn notice(&self) -> Option<&str> {
        self.0.notice.as_deref()
    }

    /// Sends one POST. Every outcome is a [`PostResult`], at most the configured timeout later. Dropping the future closes its
    /// connection.
    ///
    /// # Errors
    /// [`NoDescriptor`]: the POST was not sent.
    pub async fn post(&self, request: Post) -> Result<PostResult, NoDescriptor> {
        let started_at = OffsetDateTime::now_utc();
        let start = Instant::now();
        let deadline = start + self.0.timeout;
        let (mut head, mut charset, mut answered) = (Vec::new(), None, None);
        let exchange = async {
            let (answer, body) = self.0.send(&request).await?.into_parts();
            let (elapsed, class) = (start.elapsed(), OutcomeClass::of_status(answer.status.as_u16()));
            let error = (!class.is_success()).then(|| failure_messages::status(&answer));
            // The status decides. A body that outlasts its time is only cut short.
            answered = Some((class, answer.status.as_u16(), error, elapsed));
            charset = charset::named(&answer.headers);
            let rest = body::read(body, &mut head);
            match class.is_success() {
                true => timeout(body::TIME_AFTER_SUCCESS, rest).await.unwrap_or_default(),
                false => rest.await,
            }
            Ok::<(), Failure>(())
        };
        let exchange = self.0.connects.attempt(&request.url, exchange);
        let exchanged = timeout_at(deadline, exchange).await.unwrap_or(Err(Failure::Timeout));
        let (class, status, error, elapsed) = match (answered, exchanged) {
            (Some((class, status, error, elapsed)), _) => {
                let elapsed = if class.is_success() { elapsed } else { start.elapsed() };
                (class, Some(status), error, elapsed)
            }
            (None, exchanged) => {
                let failure = exchanged.err().unwrap_or(Failure::Timeout);
                if failure.is_without_descriptor() {
                    return Err(NoDescriptor);
                }
                let (class, message) = failure.verdict(self.0.timeout);
                (class, None, Some(message), start.elapsed())
            }
        };
        charset::to_utf8(&mut head, charset, body::MAX_KEPT_BYTES);
        // Each text is limited where it is made. This catches any that is not.
        let error = error.map(limited);
        Ok(PostResult { class, status, head, error, started_at, elapsed })
    }

    /// Returns whether a receiver can be reached: resolves its host, vets its addresses, connects and makes the TLS
    /// handshake, all that within the timeout. Sends no request. `None`: nobody was asked, as no descriptor was left, or
    /// as the operator does not allow the URL.
    pub async fn reaches(&self, url: &WebhookUrl) -> Option<bool> {
        let Ok(uri) = Uri::try_from(url.without_fragment()) else { return Some(false) };
        let connecting = self.0.connects.attempt(url, self.0.connector.clone().call(uri));
        match timeout(self.0.timeout, connecting).await {
            Ok(Err(error)) if error.is_without_descriptor() || error.is_refused_url() => None,
            connected => Some(connected.is_ok_and(|connected| connected.is_ok())),
        }
    }

    /// Returns whether the receiver is one that only the allowed networks open: none of the addresses that its host had
    /// lately is public.
    pub fn is_internal(&self, url: &str) -> bool {
        self.0.tcp.is_internal(url)
    }
}

impl Inner {
    /// Returns the answer's status and header. A stale connection from the pool is no outcome: the request is sent once
    /// more, on a new connection, which cannot be stale. If no descriptor is left for that, the first outcome counts: the
    /// request was sent.
    async fn send(&self, post: &Post) -> Result<Response<Incoming>, Failure> {
        let (request, exchange) = self.request(post)?;
        let outcome = self.send_pooled(request, &exchange).await;
        exchange.end();
        let is_stale = match &outcome {
            // Most likely the receiver closes the connection, as it was idle for too long, and wrote that before it saw the
            // request.
            Ok(response) => response.status() == StatusCode::REQUEST_TIMEOUT && exchange.is_reused(),
            Err(failure) => failure.is_break() && exchange.is_reused_and_unanswered(),
        };
        if !is_stale {
            return outcome;
        }
        let (again, exchange) = self.request(post)?;
        let repeated = self.fresh.request(again).await.map_err(Failure::Client);
        exchange.end();
        match repeated {
            Err(failure) if failure.is_without_descriptor() => outcome,
            repeated => repeated,
        }
    }

    fn request(&self, post: &Post) -> Result<(Request<ExchangeBody>, Exchange), Failure> {
        Ok(Exchange::of(request::build(post, &self.user_agent)?, &self.counts))
    }

    /// If there are enough unused connections, the request's connection does not return to the pool. Nor does an old one.
    async fn send_pooled(
        &self,
        request: Request<ExchangeBody>,
        exchange: &Exchange,
    ) -> Result<Response<Incoming>, Failure> {
        let mut connection = exchange.connection.clone();
        let mut response = self.pooled.request(request);
        let outcome = tokio::select! {
            biased;
            outcome = &mut response => outcome,
            () = async {
                let connection = connection.wait_for_connection_metadata().await;
                if let Some(connection) = connection.as_ref()
                    && (self.counts.unused() > self.max_idle || self.is_old(connection))
                {
                    connection.poison();
                }
            } => response.await,
        };
        outcome.map_err(Failure::Client)
    }

    fn is_old(&self, connection: &Connected) -> bool {
        Exchanges::of(connection).is_some_and(|exchanges| exchanges.age() >= self.reused_for)
    }
}

fn client(connector: Connector, idle_timeout: Duration, max_idle_per_host: usize) -> Client<Connector, ExchangeBody> {
    builder()
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle_timeout)
        .pool_max_idle_per_host(max_idle_per_host)
        .http1_title_case_headers(true)
        .build(connector)
}
