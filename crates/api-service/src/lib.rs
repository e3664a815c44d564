#![doc = include_str!("../README.md")]

mod answer;
mod app;
mod authentication;
mod brakes;
mod caller;
mod calls;
mod docs;
mod handlers;
mod methods;
mod metrics;
mod outbox;
mod pages;
mod problem;
mod request;
mod request_id;
mod routes;
mod server;
mod span;
mod state;
mod unread_body;
mod violation;

pub use app::{App, AppError, ONE_REQUEST};
