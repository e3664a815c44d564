#![doc = include_str!("../README.md")]

mod app;
mod calls;
mod docs;
mod handlers;
mod http;
mod metrics;
mod middleware;
mod outbox;
mod pages;
mod request;
mod routes;
mod server;
mod sessions;
mod state;

pub use app::{App, AppError, ONE_REQUEST};
