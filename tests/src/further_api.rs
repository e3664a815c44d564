//! A further API beside that of a system.

use std::{ops::Deref, time::Duration};

use tokio::{
    runtime::Handle,
    task::{JoinHandle, block_in_place},
};
use tokio_util::sync::CancellationToken;

use crate::{api::Api, system::System};

/// An API with some settings of its own, on a system's database and queues. It stops when it is dropped.
pub struct FurtherApi {
    api: Api,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl FurtherApi {
    /// Starts it, without waiting until it is ready. Its calls have the session of `like`.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(system: &System, settings: &[(&str, &str)], like: &Api) -> Self {
        let settings = system.settings_with(settings);
        let app = api_service::App::granting(Duration::from_secs(20), &settings).await.expect("the API starts");
        let api = Api { address: app.address(), ..like.clone() };
        let stop = CancellationToken::new();
        let run = app.run(stop.clone());
        let running = tokio::spawn(async { run.await.expect("it ends well") });
        Self { api, stop, running }
    }
}

impl Deref for FurtherApi {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

impl Drop for FurtherApi {
    fn drop(&mut self) {
        self.stop.cancel();
        // A step that is broken off would keep its lease.
        let ended = block_in_place(|| Handle::current().block_on(&mut self.running));
        if !std::thread::panicking() {
            ended.expect("it ends well");
        }
    }
}
