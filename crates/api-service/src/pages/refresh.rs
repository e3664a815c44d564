//! Refreshes of an open page: one that would show the same is answered without it.

use actix_web::{
    Error, HttpRequest,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        StatusCode,
        header::{ETAG, EntityTag, Header, IfNoneMatch},
    },
    middleware::Next,
};
use ring::digest::{SHA256, digest};

/// The header of the console's refreshes.
const REFRESH_HEADER: &str = "x-refresh";

/// Returns true if the console asks for what an open page shows.
pub(super) fn is_refresh(request: &HttpRequest) -> bool {
    let is_console = request.path().starts_with("/console/") && request.method().is_safe();
    is_console && request.headers().contains_key(REFRESH_HEADER)
}

/// Answers 304 to a refresh if the page is what its client has.
pub(super) async fn without_what_is_known(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let known = is_refresh(request.request()).then(|| IfNoneMatch::parse(&request).ok());
    let answered = next.call(request).await?.map_into_boxed_body();
    let Some(known) = known.filter(|_| answered.status() == StatusCode::OK) else { return Ok(answered) };
    let (request, answer) = answered.into_parts();
    let (mut answer, body) = answer.into_parts();
    let Ok(page) = body.try_into_bytes() else {
        return Ok(ServiceResponse::new(request, answer.set_body(BoxBody::new(()))));
    };
    let tag = EntityTag::new_strong(hex::encode(digest(&SHA256, &page)));
    if let Ok(tag) = tag.to_string().parse() {
        answer.headers_mut().insert(ETAG, tag);
    }
    let is_known = matches!(known, Some(IfNoneMatch::Items(tags)) if tags.iter().any(|one| one.weak_eq(&tag)));
    let body = match is_known {
        true => {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
            BoxBody::new(())
        }
        false => BoxBody::new(page),
    };
    Ok(ServiceResponse::new(request, answer.set_body(body)))
}
