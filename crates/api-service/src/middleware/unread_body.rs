//! Chunked bodies of requests that are not read to their end.

use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use actix_web::{
    Error, HttpMessage,
    body::{BodySize, BoxBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    error::PayloadError,
    middleware::Next,
    web::Bytes,
};
use futures_util::Stream;

/// Lets actix-http close the connection after the answer if the request's chunked body was not read to its end, as it does
/// with other bodies. Without a reader it continues to read a chunked body, however long the body is and however slowly it
/// comes, also for a client without a session. So the reader stays until the answer is written.
pub(crate) async fn closes_connection(
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BodyWithReader>, Error> {
    let mut reader = None;
    if request.chunked().unwrap_or(true) {
        let shared = Reader(Rc::new(RefCell::new(request.take_payload())));
        request.set_payload(Payload::Stream { payload: Box::pin(shared.clone()) });
        reader = Some(shared);
    }
    let response = next.call(request).await?.map_into_boxed_body();
    Ok(response.map_body(|_, body| BodyWithReader { body, _reader: reader }))
}

/// The body of an answer, with the reader of its request's body.
pub(crate) struct BodyWithReader {
    body: BoxBody,
    _reader: Option<Reader>,
}

impl MessageBody for BodyWithReader {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}

#[derive(Clone)]
struct Reader(Rc<RefCell<Payload>>);

impl Stream for Reader {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_next(cx)
    }
}
