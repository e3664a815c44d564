#![doc = include_str!("../README.md")]

pub mod api;
pub mod browser;
pub mod chaos;
pub mod cluster;
pub mod database;
pub mod events;
mod failure;
pub mod history;
pub mod life;
pub mod name_server;
pub mod outsider;
pub mod pooler;
pub mod processes;
pub mod prometheus;
pub mod proxy;
pub mod receiver;
pub mod servers;
pub mod system;
pub mod tools;
pub mod upstream;
pub mod wait;
