//! Who calls, and what every call works with.

use std::{future, ops::Deref};

use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload, web::Data};
use ledger::{Actor, Ledger};

use super::problem::ApiError;
use crate::state::State;

/// The administrator who calls, with the state that is shared by all workers. Handlers get the tenant and the user only
/// from here.
pub(crate) struct Caller {
    pub(crate) admin: Actor,
    /// For the tenant's own calls, in place of the state's.
    pub(crate) ledger: Ledger,
    state: Data<State>,
}

impl Deref for Caller {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

/// Behind `sessions::admit` there is always one.
impl FromRequest for Caller {
    type Error = ApiError;
    type Future = future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let admin = request.extensions().get::<Actor>().cloned();
        let caller = admin.zip(request.app_data::<Data<State>>().cloned()).map(|(admin, state)| {
            let ledger = state.ledger.of_tenant(admin.tenant);
            Self { admin, ledger, state }
        });
        future::ready(caller.ok_or(ApiError::NotLoggedIn))
    }
}
