#![doc = include_str!("../README.md")]

pub mod connections;
mod database_watch;
mod foundation;
mod listen;
pub mod logs;
pub mod metrics;
pub mod ops;
pub mod process;
pub mod publishing;
pub mod readiness;
pub mod settings;
pub mod shutdown;
mod start_error;
mod until_done;
mod usage;

pub use broker::{EssentialTasks, TaskPanicked, Watched};
pub use database_watch::DatabaseWatch;
pub use foundation::{Foundation, Running};
pub use listen::listen;
pub use ops::OpsServer;
pub use readiness::Readiness;
pub use settings::{Sensitive, Settings, SettingsError};
pub use start_error::{SchemaTooOld, StartError};
pub use until_done::until_done;
